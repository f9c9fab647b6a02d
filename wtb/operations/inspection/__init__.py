"""Looking at sweeps and executions: how far they are, and what happened."""
