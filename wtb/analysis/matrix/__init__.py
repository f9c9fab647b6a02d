"""The matrix of one sweep: its figures, its best combination, and the causes of differences."""
