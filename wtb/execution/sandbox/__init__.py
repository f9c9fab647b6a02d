"""Node processes: where user code runs apart from the runner, its database and its leases."""
