"""Sweeps while they run: submission, queue, leases, flushes, workers, retries."""
