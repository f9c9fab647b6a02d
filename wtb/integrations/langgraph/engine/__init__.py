"""The engine that runs them."""
