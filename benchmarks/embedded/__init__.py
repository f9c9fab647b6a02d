"""Benchmarks of sweeps in one process, with its threads or node processes."""
