"""Workflows as data: their graphs, and what workers publish of them."""
