"""The audit hook of this process: it hears what Python is about to do, and passes on the few events that count."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[..., None]  # of the arguments of its event
_handlers: dict[str, Handler] = {}
_owner = 0  # the process that listens: those that it forks must not speak for it
_lock = threading.Lock()


def listen(handlers: Mapping[str, Handler]) -> None:
    """Call handlers from now on. A hook cannot be removed.

    Args:
        handlers: By the name of the event, as in Python's table of audit events.
    """
    global _owner
    with _lock:
        _owner = os.getpid()
        if not _handlers:
            sys.addaudithook(_hear)
        _handlers.update(handlers)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Hear of everything that Python audits. An error in here would fail what user code does."""
    handler = _handlers.get(event)
    if handler is None or os.getpid() != _owner:
        return
    try:
        handler(*arguments)
    except Exception:  # noqa: BLE001 - arguments of another shape, or a report that cannot be sent
        return
