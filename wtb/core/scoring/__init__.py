"""Metrics: how their values are read, their scales, and what a failed cell counts as."""
