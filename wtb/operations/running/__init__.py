"""Runs of sweeps and executions, locally or on workers: plan, submit, continue, copy, extend, wait."""
