"""Estimates that hold however often they are looked at."""
