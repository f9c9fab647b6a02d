"""Benchmarks of sweeps on workers, with their broker and PostgreSQL."""
