"""What can be concluded from a sweep: scores, matrix, comparisons, and when enough is known."""
