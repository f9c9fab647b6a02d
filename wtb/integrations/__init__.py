"""Integrations: LangGraph, clients of models, judges, servers of tools (MCP), pytest. Import them only where used."""
