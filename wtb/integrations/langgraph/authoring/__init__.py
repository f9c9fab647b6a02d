"""Graphs of LangGraph as workflows."""
