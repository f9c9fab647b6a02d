"""Figures of sweeps: matrix, comparisons, costs, scores, pools, outputs side by side, comments."""
