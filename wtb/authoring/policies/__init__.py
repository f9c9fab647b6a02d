"""Policies in Cedar: how they are evaluated, and what nodes are held against while they run."""
