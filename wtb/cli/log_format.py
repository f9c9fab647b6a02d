"""How processes that stay say what happens: words in a terminal, or JSON for what collects it."""

from __future__ import annotations

from wtb.cli.console import log_what_is_said
from wtb.hosting.telemetry import logs


def log_as_json(part: str) -> None:
    """Have a process log in JSON, what `say` says included, if its environment asks for it. Raises InputError.

    Args:
        part: What it is, such as `worker`.
    """
    if logs.wants_json():
        logs.write_json_logs(part)
        log_what_is_said()
