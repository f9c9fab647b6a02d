"""The audit hook of this process: it hears what Python is about to do, and passes on the few events that count.

Handlers only listen, and what they raise is ignored. Guards stop what policies deny.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from wtb.core.errors import PolicyDenied

Handler = Callable[..., None]  # of the arguments of its event
_handlers: dict[str, Handler] = {}
_guards: dict[str, Handler] = {}
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
        _install()
        _handlers.update(handlers)


def guard(handlers: Mapping[str, Handler]) -> None:
    """Call handlers from now on that stop what Python is about to do, by raising PolicyDenied.

    Processes that this one forks are guarded, too.

    Args:
        handlers: By the name of the event.
    """
    with _lock:
        _install()
        _guards.update(handlers)


def _install() -> None:
    if not _handlers and not _guards:
        sys.addaudithook(_hear)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """Hear of everything that Python audits. An error in here would fail what user code does."""
    if (guarding := _guards.get(event)) is not None:
        _check(guarding, event, arguments)
    handler = _handlers.get(event)
    if handler is None or os.getpid() != _owner:
        return
    try:
        handler(*arguments)
    except Exception:  # noqa: BLE001 - arguments of another shape, or a report that cannot be sent
        return


def _check(guarding: Handler, event: str, arguments: tuple[Any, ...]) -> None:
    try:
        guarding(*arguments)
    except PolicyDenied:
        raise
    except Exception as error:  # noqa: BLE001 - arguments of another shape: what cannot be decided is denied
        raise PolicyDenied(f"{event} is denied: policies cannot decide about it ({type(error).__name__})") from None
