"""The host of executions in this process: its pool, heartbeat, budgets, quotas, alerts, code drift and repair."""
