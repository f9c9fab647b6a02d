"""Failures of outside services: how they are recognized, and how long to wait after one."""
