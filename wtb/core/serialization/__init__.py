"""State values as typed JSON and back, redacted where they are secret. Nothing is pickled."""
