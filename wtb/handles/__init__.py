"""The Python API: benches, sweeps, executions and questions as objects."""
