"""A check of the cases of a sweep before anything runs: which of them run, and what they do to its figures."""
