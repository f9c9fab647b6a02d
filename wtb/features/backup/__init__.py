"""Back up and restore a whole database with its files."""
