"""Inspection of sweeps, executions and published workflows: their progress, cells, files and logs."""
