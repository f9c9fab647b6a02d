"""Documents about what is kept: backups, and what was erased."""
