"""Celery workers for WTB: sessions that claim published tasks and run their executions."""
