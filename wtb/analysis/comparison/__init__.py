"""Comparisons of two sweeps or of a series: the verdict on the later one, and its reasons."""
