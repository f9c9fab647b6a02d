"""Views of a matrix: rows filtered, sorted and grouped by factors, and pivot tables."""
