"""The workflows that are measured."""
