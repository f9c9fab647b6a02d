"""Holds: what makes an execution pause or wait before its next step."""
