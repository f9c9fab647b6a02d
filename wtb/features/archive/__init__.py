"""Export and import executions, and copy sweeps to other databases."""
