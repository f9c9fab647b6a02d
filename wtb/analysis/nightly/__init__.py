"""Nights of a series compared with a reference that does not move."""
