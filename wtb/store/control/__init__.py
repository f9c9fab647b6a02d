"""Decisions of people: pauses, answers, edits, rollbacks, forks, extensions, labels, stopped combinations."""
