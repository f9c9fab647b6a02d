"""Texts about sessions, schedules, retention and the stack."""
