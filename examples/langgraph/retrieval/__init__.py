"""Retrieval that grades its results, one grader for each document, and searches again if too few are good."""
