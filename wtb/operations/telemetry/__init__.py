"""Telling monitoring systems what happened, made from what is kept."""
