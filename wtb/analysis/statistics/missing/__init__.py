"""Cells that should have a score and have none, and what they may do to a claim."""
