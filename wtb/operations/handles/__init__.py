"""The Python API: objects whose methods call the operations."""
