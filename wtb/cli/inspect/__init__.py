"""Commands that look at executions."""
