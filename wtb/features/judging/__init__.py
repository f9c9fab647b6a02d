"""Judges and human labels: draw, give, compare and rank."""
