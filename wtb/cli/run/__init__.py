"""Commands that plan, run, submit and resume."""
