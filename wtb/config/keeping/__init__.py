"""What is kept: for how long, and what of it is not."""
