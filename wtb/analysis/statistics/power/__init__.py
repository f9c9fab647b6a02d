"""How many cases show what, and what to do where they do not."""
