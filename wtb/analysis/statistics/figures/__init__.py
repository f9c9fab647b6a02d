"""Figures over all cells of a row, and over the repeats of a case."""
