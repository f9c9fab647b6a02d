"""Sweeps whose truth is known: how often the statistics are right. `python -m simulations --help`."""
