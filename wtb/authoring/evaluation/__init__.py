"""Evaluators of cells: built-in ones, those of users, and adapters for scorers of other tools."""
