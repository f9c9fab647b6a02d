"""How long what a node process was asked for may take. The runner keeps the time, the process says how far it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

NODE: Final = "node"  # the node's function is called
COROUTINE: Final = "coroutine"  # the same, and it is cancelled at its deadline
FILES: Final = "files"  # it has returned: its files are kept, and its step is joined
CANCELLED_S: Final = 2.0  # for what ends by itself at its deadline, such as a cancelled coroutine
BEGIN_S: Final = 900.0  # to get the files of an attempt that has a deadline, before its node is called
JOIN_S: Final = 300.0  # for reducers, branches and conditions


class Clock:
    """The deadline of one request: of its beginning first, then of each phase that the process enters, once each.

    limits: seconds by phase. first: until it has entered one; None is no limit. extending: phases whose seconds come
    after the deadline of the phase before, and are no deadline that a user has set.
    """

    def __init__(self, limits: Mapping[str, float], first: float | None, extending: tuple[str, ...] = ()) -> None:
        self.limit = first
        self._limits = limits
        self._extending = extending
        self._entered: set[str] = set()
        self._ends = None if first is None else time.monotonic() + first

    @classmethod
    def of_attempt(cls, timeout: float | None) -> Clock:
        """Of an attempt of a node with a deadline of so many seconds, which its snapshot is part of."""
        if timeout is None:
            return cls({}, None)
        limits = {NODE: timeout, COROUTINE: timeout + CANCELLED_S, FILES: CANCELLED_S}
        return cls(limits, max(BEGIN_S, timeout), (FILES,))

    def enter(self, phase: object) -> None:
        """The process reports that it has entered a phase. Raises ValueError for an unknown one."""
        if not isinstance(phase, str) or phase not in self._limits:
            raise ValueError(f"a phase {phase!r:.50}")
        if phase in self._entered:  # such as the second of two calls: the clock goes on
            return
        self._entered.add(phase)
        if phase in self._extending:
            self._ends = max(time.monotonic(), self._ends or 0.0) + self._limits[phase]
        else:
            self.begin(self._limits[phase])

    def begin(self, limit: float) -> None:
        """What comes next has so many seconds."""
        self.limit = limit
        self._ends = time.monotonic() + limit

    @property
    def left(self) -> float | None:
        """Seconds until the process is ended; None is never."""
        return None if self._ends is None else self._ends - time.monotonic()
