"""Grids of levels in a sweep file, the files that parameters name, and references to levels."""
