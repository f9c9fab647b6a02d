"""Watching for stalled attempts, which report nothing for too long, from a thread of the runner."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.core.errors import WTBError
from wtb.execution.attempt_listener import AttemptListener

LOOK_S = 1.0  # at most, between two looks


class Stalls:
    """Marks attempts as stalled that report nothing for `limit` seconds, once per silence.

    Its thread runs while there is an attempt to watch.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._listeners: set[AttemptListener] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, listener: AttemptListener) -> Iterator[None]:
        with self._changed:
            self._listeners.add(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="wtb-stalls", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._listeners.discard(listener)

    def _look(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(min(LOOK_S, self.limit / 4))
                if not self._listeners:
                    self._thread = None
                    return
                listening = list(self._listeners)
            for listener in listening:
                try:
                    listener.stall(self.limit)
                except WTBError:  # its own thread finds that out too
                    continue
