"""Arguments of operations: what each may be, and one place that refuses all else."""
