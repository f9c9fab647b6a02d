"""Judges of what corrective retrieval found, held against what people said of it."""
