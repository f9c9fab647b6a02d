"""The matrix of one sweep: its figures, its best, and where differences come from."""
