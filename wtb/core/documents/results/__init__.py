"""Documents about results: what combinations returned for each case."""
