"""Celery workers for WTB."""
