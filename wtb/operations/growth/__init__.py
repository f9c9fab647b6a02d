"""What is added to a sweep that is there: rows, cases, repeats and levels; and combinations that are stopped."""
