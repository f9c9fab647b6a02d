"""Commands about figures and comparisons."""
