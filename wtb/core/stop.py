"""Flags and quotas that hold work back: stopping, and the disk of a session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from wtb.core.errors import StateError, WTBError

PROCESS_DIED = "its process died"  # why a sweep waits for somebody to resume it
WALL = "limit reached: wall"  # the beginning of the reason
ENOUGH_KNOWN = "known"  # the beginning of the reason of a sweep that stopped because enough was known
INTERRUPTED = "interrupted"  # the reason of a stop that a person requested


class Stopped(WTBError):
    """No new work is started; committed work stays, and the sweep can be resumed."""


class Stop:
    """A flag that is raised once, with a reason.

    Attributes:
        limit: The reached limit, if it was one: `usd`, `nodes.answer.usd`, or, with a scope, `project usd`.
        decided: The status that somebody else gave the sweep.
        full: Whether a disk is full, so that released work can be done later.
    """

    def __init__(self) -> None:
        self._raised = threading.Event()
        self._raised_at = 0.0
        self.reason: str | None = None
        self.limit: str | None = None
        self.decided: str | None = None
        self.full = False

    def request(self, reason: str, *, limit: str | None = None, decided: str | None = None, full: bool = False) -> None:
        if not self._raised.is_set():
            self.reason, self.limit, self.decided, self.full = reason, limit, decided, full
            self._raised_at = time.monotonic()
            self._raised.set()

    @property
    def requested(self) -> bool:
        return self._raised.is_set()

    def is_late(self, grace: float) -> bool:
        """Return whether the run's time was over more than `grace` seconds ago, so that running work is ended."""
        # Other stops let running nodes end: only the time of a run is a promise about when it ends.
        return self._raised.is_set() and self.limit == "wall" and time.monotonic() - self._raised_at > grace

    def check(self) -> None:
        """Raise Stopped once a stop was requested."""
        if self._raised.is_set():
            raise Stopped(self.reason or "stopped")

    def wait(self, seconds: float) -> None:
        """Sleep, unless a stop is requested. Raises Stopped."""
        if self._raised.wait(seconds):
            self.check()


class Disk:
    """Bytes of files that a session may keep, each content once. `missing` returns the digests that are new to it."""

    def __init__(self, quota: int | None, used: int, missing: Callable[[Iterable[str]], set[str]]) -> None:
        self._quota = quota
        self._used = used
        self._missing = missing
        self._counted: set[str] = set()
        self._lock = threading.Lock()

    @property
    def free(self) -> int | None:
        return None if self._quota is None else max(0, self._quota - self._used)

    def seen(self, used: int) -> None:
        """Update the usage of the session, which includes its other runs."""
        with self._lock:
            self._used = max(self._used, used)

    def take(self, files: Sequence[tuple[str, int]]) -> None:
        """Count files that a node left. Raises StateError if they would exceed the quota; then none counts."""
        if self._quota is None or not files:
            return
        with self._lock:
            new = self._missing(digest for digest, _ in files) - self._counted
            added = sum(size for digest, size in files if digest in new)
            if self._used + added > self._quota:
                raise StateError(
                    f"its files add {added:,} bytes, and the quota of its session ({self._quota:,} bytes) leaves "
                    f"{self.free:,}: remove what is not needed from ctx.workspace, free space with `wtb admin gc`, or "
                    f"raise the quota with `wtb admin session change`"
                )
            self._used += added
            self._counted |= new
