"""What may be removed, and removing it."""
