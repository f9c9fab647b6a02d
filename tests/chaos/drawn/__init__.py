"""Sweeps drawn at random: their workflows, their options, and what each of their cells must come to."""
