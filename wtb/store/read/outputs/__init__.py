"""Outputs of cells side by side: which cases match, and what their cells returned."""
