"""Deciding about running executions: pause, answer, edit, roll back."""
