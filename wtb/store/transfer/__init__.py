"""Rows on their way from one database to another: archives, backups and copies of sweeps."""
