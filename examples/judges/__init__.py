"""Judges of the results of corrective retrieval, compared with human ratings."""
