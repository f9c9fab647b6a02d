"""Figures and comparisons: what a sweep found, and what changed since another."""
