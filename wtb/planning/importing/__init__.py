"""Test cases of other tools as cases and evaluators of WTB."""
