"""How classes of values are made."""
