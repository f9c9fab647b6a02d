"""Evaluators: what scores a cell."""
