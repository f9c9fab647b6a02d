"""Which factors, and which pairs of factors, make the difference between combinations."""
