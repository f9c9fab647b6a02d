"""Documents about sweeps and executions, for people and for scripts."""
