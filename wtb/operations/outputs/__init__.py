"""Outputs of cells side by side, and all of one output."""
