"""The log format of processes that keep running: text for a terminal, or JSON for a log collector."""

from __future__ import annotations

from wtb.cli.console import log_what_is_said
from wtb.hosting import json_logs


def log_as_json(part: str) -> None:
    """Have a process log in JSON, what `say` says included, if its environment asks for it. Raises InputError.

    Args:
        part: What it is, such as `worker`.
    """
    if json_logs.wants_json():
        json_logs.write_json_logs(part)
        log_what_is_said()
