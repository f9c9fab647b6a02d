"""Two sweeps compared: whether the later one is worse, and why."""
