"""The same work, done by other tools."""
