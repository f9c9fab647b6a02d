"""Commands by which people decide about executions."""
