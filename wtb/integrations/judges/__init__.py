"""Judges: evaluators that ask a model what an answer is worth, by a rubric."""
