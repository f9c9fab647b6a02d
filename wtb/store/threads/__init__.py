"""Checkpoints of LangGraph's threads, for its saver."""
