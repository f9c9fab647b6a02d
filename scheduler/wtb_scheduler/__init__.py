"""The scheduler: rounds that reclaim leases, end sweeps, start fires of schedules and publish tasks."""
