"""The tree of a sweep: its stored spec and code, combinations, checkpoints, and the cells that run together."""
