"""Refunds that a person approves, changes or refuses before they are sent."""
