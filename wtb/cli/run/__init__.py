"""Commands that read cases, plan, run, submit, extend, steer and resume."""
