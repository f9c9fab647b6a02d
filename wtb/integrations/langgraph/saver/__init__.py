"""A checkpointer for LangGraph's own threads."""
