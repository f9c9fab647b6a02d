"""Safe expressions over figures of a matrix and over states, in place of `eval`."""
