"""Collecting garbage."""
