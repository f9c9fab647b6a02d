"""Attempts that say nothing for too long: found by a thread of the runner that hears them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.core.errors import WTBError
from wtb.execution.attempt_listener import Telling

LOOK_S = 1.0  # at most, between two looks


class Stalls:
    """Says of each attempt that told nothing for `limit` seconds that it has stalled, once for each silence.

    Its thread runs while there is an attempt to listen to.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._told: set[Telling] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, told: Telling) -> Iterator[None]:
        with self._changed:
            self._told.add(told)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="wtb-stalls", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._told.discard(told)

    def _look(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(min(LOOK_S, self.limit / 4))
                if not self._told:
                    self._thread = None
                    return
                listening = list(self._told)
            for told in listening:
                try:
                    told.stall(self.limit)
                except WTBError:  # its own thread finds that out too
                    continue
