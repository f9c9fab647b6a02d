"""Private servers of this machine, and processes that end with their owner."""
