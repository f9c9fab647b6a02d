"""Logs as JSON for collectors, one object a line. Without the setting they stay text for a terminal."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from importlib.util import find_spec
from typing import Any, Final, TextIO

from wtb.config.distribution import pip_install
from wtb.core.errors import InputError
from wtb.core.ids import current_log_ids

SETTING: Final = "WTB_LOG"
_FORMATS: Final = ("text", "json")


def wants_json() -> bool:
    """Return whether the environment selects JSON.

    Raises:
        InputError: If the format is unknown, or a package is not installed.
    """
    log_format = os.environ.get(SETTING) or "text"
    if log_format not in _FORMATS:
        raise InputError(f"{SETTING} is {log_format!r}; expected {' or '.join(_FORMATS)}")
    if log_format == "json" and find_spec("structlog") is None:
        raise InputError(f"logs as JSON need more packages: {pip_install('logs')}")
    return log_format == "json"


def write_json_logs(part: str, stream: TextIO | None = None) -> None:
    """Write logs of this process as JSON, with the ids of the work of each thread.

    Args:
        part: The role of this process, such as `worker`.
        stream: The destination; by default stderr.
    """
    import structlog

    def with_ids(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"part": part, **current_log_ids(), **event}

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.format_exc_info,
        with_ids,
    ]
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, structlog.processors.JSONRenderer()],
        foreign_pre_chain=shared,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    log = logging.getLogger("wtb")
    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    # By default a thread prints its traceback to stderr, which is no JSON.
    threading.excepthook = lambda ended: log.critical(
        "thread %s ended", ended.thread and ended.thread.name, exc_info=ended.exc_value
    )
