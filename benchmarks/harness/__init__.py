"""How things are measured: fresh databases, workers, timing, and the table of figures."""
