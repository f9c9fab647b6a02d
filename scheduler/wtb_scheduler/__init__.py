"""What decides which sweep runs when."""
