"""Texts about executions and what belongs to them."""
