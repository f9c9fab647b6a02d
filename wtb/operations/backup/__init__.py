"""Backups of a database with its files, and restoring them."""
