"""Running: from a description to a sweep or an execution at its end, here or by workers."""
