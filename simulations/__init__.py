"""Sweeps of which the truth is known: how often the statistics are right. `python -m simulations --help`."""
