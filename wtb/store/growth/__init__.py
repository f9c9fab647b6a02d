"""The SQL of what is added to a sweep, and of combinations that are stopped."""
