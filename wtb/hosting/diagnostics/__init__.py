"""What `wtb doctor` checks."""
