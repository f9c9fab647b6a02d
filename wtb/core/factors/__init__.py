"""Factors: parameters of nodes that a sweep varies, and their levels."""
