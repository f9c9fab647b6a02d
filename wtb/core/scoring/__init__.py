"""Metrics: how their values are read, their scales, and the scores of failed cells."""
