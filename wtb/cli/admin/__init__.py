"""Commands about projects, sessions, schedules, workers and the stack."""
