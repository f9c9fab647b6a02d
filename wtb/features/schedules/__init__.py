"""Schedules: sweeps by the clock, each compared with a baseline."""
