"""Others: LangGraph, clients of models, pytest. Each is imported only where it is used."""
