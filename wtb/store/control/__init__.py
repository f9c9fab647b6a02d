"""What people decide: pauses, answers, edits, rollbacks, forks."""
