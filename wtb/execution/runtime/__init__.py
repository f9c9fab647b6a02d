"""What hosts executions in this process: slots, leases, budgets, disks, repair."""
