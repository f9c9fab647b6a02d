"""Attempts that stall: they report nothing for longer than `run.stall` allows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.core.errors import WTBError
from wtb.execution.attempts.attempt import Attempt

STALL_CHECK_S = 1.0  # at most, between two checks for stalled attempts


class Stalls:
    """Marks attempts as stalled that report nothing for `limit` seconds, once per silence.

    Its thread runs while there is an attempt to watch.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._attempts: set[Attempt] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, attempt: Attempt) -> Iterator[None]:
        """Watch an attempt during the block."""
        with self._changed:
            self._attempts.add(attempt)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="wtb-stalls", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._attempts.discard(attempt)

    def _look(self) -> None:
        """Check the attempts for stalls until there is none to watch."""
        while True:
            with self._changed:
                self._changed.wait(min(STALL_CHECK_S, self.limit / 4))
                if not self._attempts:
                    self._thread = None
                    return
                running = list(self._attempts)
            for attempt in running:
                try:
                    attempt.stall(self.limit)
                except WTBError:  # its own thread finds that out too
                    continue
