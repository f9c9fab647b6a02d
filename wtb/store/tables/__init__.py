"""The tables and their columns."""
