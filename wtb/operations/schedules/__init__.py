"""Schedules: carrying out what is due, and what came of it."""
