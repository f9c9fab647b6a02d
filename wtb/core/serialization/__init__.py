"""State values as typed JSON and back. Nothing is pickled."""
