"""The tree of a sweep: combinations, checkpoints, and which cells go on together."""
