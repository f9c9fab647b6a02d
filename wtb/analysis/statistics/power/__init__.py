"""The power of tests, and the next step if they settle nothing."""
