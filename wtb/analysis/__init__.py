"""Conclusions from a sweep: scores, matrix, comparisons, gates, labels, checks of judges, and early ends."""
