"""Documents about what is kept: backups, what was erased, and what policies say."""
