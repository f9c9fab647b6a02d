"""The memory quota of a session: its node processes are measured, node runs wait, and the largest process is ended."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from wtb.core.errors import StoreError
from wtb.core.stop import Stop, Stopped
from wtb.core.texts import bytes_of
from wtb.execution.sandbox.process_memory import tree_memory
from wtb.store.database import Database
from wtb.store.limits.session_memory import Allowed, Memory, memory_of_others, memory_quota, record_memory
from wtb.store.process_identity import is_not_dead
from wtb.store.runs.slots import LEASE_S

if TYPE_CHECKING:
    from wtb.execution.engine.executor import CodeExecutor, Measured

REACHED = "memory quota of session"  # so begins the reason of a sweep whose node runs wait for memory
GRACE_S = 2.0  # that a session may be above its quota before a process is ended
CALM_S = 5.0  # that a session is below its quota before people are told so
_LOOK_S = 0.5  # between two looks at least, however many sweeps of the session ask for them
_PAUSE_S = 0.1  # between two looks of a node run that waits
_STEP = 1 << 20  # bytes; smaller changes are recorded with the next heartbeat only


class SessionMemory:
    """What the node processes of a runner use of the memory quota of a session. Threads share it.

    Above the quota no node run begins, in any runner. After GRACE_S the runner with the largest process ends that one,
    and from then on begins no more node runs at a time than have fitted.

    Attributes:
        reason: Why node runs wait; None if they do not.
        is_limited: Whether the session has such a quota.
    """

    def __init__(self, database: Database, runner_id: str, session_id: str) -> None:
        self._database = database
        self._runner_id = runner_id
        self._session_id = session_id
        self._codes: list[CodeExecutor] = []
        self._lock = threading.Lock()
        self._running = 0
        self._most: int | None = None  # node runs at a time, once a process was ended; None for any number
        self._above_since: float | None = None
        self._looked_at = -_LOOK_S
        self._recorded: Memory | None = None
        self._recorded_at = 0.0
        self.reason: str | None = None
        self.is_limited = False

    def add(self, code: CodeExecutor) -> None:
        """Measure the node processes of this executor, too."""
        with self._lock:
            self._codes.append(code)

    def remove(self, code: CodeExecutor) -> None:
        """Measure those of this executor no longer; what was recorded of the last one is removed."""
        with self._lock:
            self._codes.remove(code)
            is_last = not self._codes
        if is_last:
            with suppress(StoreError):  # it counts no longer than a lease
                self._record(None)

    @property
    def is_tight(self) -> bool:
        """Whether a node run may have to wait."""
        return self.reason is not None or self._most is not None

    def wait(self, stop: Stop, is_asked_for: Callable[[], bool]) -> None:
        """Wait until a node run may begin.

        Args:
            stop: Of the sweep.
            is_asked_for: Returns whether a person wants the execution to pause or to end.

        Raises:
            Stopped: A stop is requested, of the sweep or of the execution.
        """
        while not self._has_place():
            if is_asked_for():
                raise Stopped("a person asked for the execution")
            stop.wait(_PAUSE_S)

    @contextmanager
    def turn(self, stop: Stop, is_asked_for: Callable[[], bool]) -> Iterator[None]:
        """Wait as `wait` does, and count a node run until the block ends."""
        while True:
            with self._lock:
                if self._has_place():
                    self._running += 1
                    break
            self.wait(stop, is_asked_for)
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _has_place(self) -> bool:
        return self.reason is None and (self._most is None or self._running < self._most)

    def look(self) -> None:
        """Measure, and decide who may begin and which process is ended. Called once a second. Raises StoreError."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        allowed = memory_quota(self._database, self._session_id)
        self.is_limited = allowed is not None
        if allowed is None:
            self._record(None)
            self.reason = self._most = self._above_since = None
            return
        processes = self._measured()
        busy = [one for one in processes if one.is_busy]
        mine = Memory(sum(one.size for one in processes), max((one.size for one in busy), default=0))
        self._record(mine)
        others = memory_of_others(self._database, self._session_id, self._runner_id, alive=is_not_dead)
        used = mine.used + others.used
        if used <= allowed.quota:
            self._open(allowed, used, mine)
        else:
            self._close(allowed, used, now)
            is_due = self._above_since is not None and now - self._above_since >= GRACE_S
            if not self._end_idle() and is_due and busy and mine.largest >= others.largest:
                self._end_largest(allowed, used, max(busy, key=lambda one: one.size))

    def _measured(self) -> list[Measured]:
        with self._lock:
            codes = list(self._codes)
        return [process for code in codes for process in code.measure(tree_memory)]

    def _record(self, memory: Memory | None) -> None:
        """Record what is used, for other runners, if it differs."""
        before = self._recorded
        if memory is None or before is None:
            is_same = memory is before
        else:
            changes = memory.used - before.used, memory.largest - before.largest
            is_same = all(abs(change) < _STEP for change in changes)
            is_same = is_same and time.monotonic() - self._recorded_at < LEASE_S / 3
        if not is_same:
            record_memory(self._database, self._runner_id, self._session_id, memory)
            self._recorded, self._recorded_at = memory, time.monotonic()

    def _open(self, allowed: Allowed, used: int, mine: Memory) -> None:
        """Let node runs begin: one more at a time than so far, if there is room for another one like the largest."""
        with self._lock:
            self.reason = self._above_since = None
            if self._most is not None and self._running >= self._most and used + mine.largest <= allowed.quota:
                self._most += 1

    def _close(self, allowed: Allowed, used: int, now: float) -> None:
        """Let no node run begin."""
        with self._lock:
            self._above_since = now if self._above_since is None else self._above_since
            self.reason = (
                f"{REACHED} {allowed.session!r} reached: its node processes use {bytes_of(used)} of "
                f"{bytes_of(allowed.quota)}; node runs begin when they use less"
            )

    def _end_idle(self) -> bool:
        """End processes in which nothing runs. Returns whether there were any."""
        with self._lock:
            codes = list(self._codes)
        ended = [code.end_idle() for code in codes]
        return any(ended)

    def _end_largest(self, allowed: Allowed, used: int, largest: Measured) -> None:
        with self._lock:
            self._most = max(1, min(self._running, self._most or self._running) - 1)
        largest.end(
            f"its process was ended: the node processes of session {allowed.session!r} used {bytes_of(used)} of its "
            f"memory quota of {bytes_of(allowed.quota)}, and this one, with {bytes_of(largest.size)}, was the largest; "
            f"use less memory or raise the quota with `wtb session change {shlex.quote(allowed.session)} --memory SIZE`"
        )


_memories: WeakValueDictionary[tuple[str, str], SessionMemory] = WeakValueDictionary()
_memories_change = threading.Lock()


def session_memory(database: Database, runner_id: str, session_id: str) -> SessionMemory:
    """Return what all sweeps of a session in one runner share."""
    with _memories_change:
        memory = _memories.get((runner_id, session_id))
        if memory is None:
            memory = _memories[runner_id, session_id] = SessionMemory(database, runner_id, session_id)
        return memory
