"""The measuring harness: fresh databases, workers, timing, and the table of figures."""
