"""Read the user's own source text: which modules are own, what they define, and what a piece of code refers to."""
