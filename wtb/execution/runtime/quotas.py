"""Quotas of a session: the memory of its node processes, and the limits and rates of nodes."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import ConflictError, StoreError
from wtb.core.stop import Stop, Stopped
from wtb.core.texts import bytes_of
from wtb.execution.sandbox.launch.reaper import descendants
from wtb.store.access.usage import Allowed, Memory, memory_of_others, memory_quota, record_memory
from wtb.store.database import Database
from wtb.store.process_identity import is_not_dead
from wtb.store.runs.slots import LEASE_S, Limits, Place, ask, hold, make_place

if TYPE_CHECKING:
    from wtb.execution.engine.executor import CodeExecutor, Measured

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_LARGE = 512 << 20  # bytes of a single process, of which it is not worth the time to find out what it shares


def tree_memory(reaper_pid: int) -> int:
    """Return the bytes that all processes below a reaper have in memory.

    A page that several processes share counts once, in equal parts (PSS), because forks share most of theirs.
    """
    if sys.platform != "linux":
        return _portable(reaper_pid)
    pids = descendants(reaper_pid)
    # Computing PSS walks all pages, which takes long for a large process; a single one shares little.
    if len(pids) == 1 and (resident := _resident(pids[0])) > _LARGE:
        return resident
    return sum(map(process_memory, pids))


def process_memory(pid: int) -> int:
    """Return the bytes of one process on Linux; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as sizes:
            for line in sizes:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # it has ended, is a zombie, or may not be looked at so closely
        pass
    return _resident(pid)


def _resident(pid: int) -> int:
    """Return the bytes of a process, with shared pages counted in full, which is quick; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as pages:
            return int(pages.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _portable(reaper_pid: int) -> int:
    """Return the bytes of all processes below a reaper, with shared pages counted for each."""
    from wtb.execution.engine.resource_usage import measured

    usage = measured(reaper_pid, True, {})
    return 0 if usage is None else int(usage["rss"])


REACHED = "memory quota of session"  # so begins the reason of a sweep whose node runs wait for memory
GRACE_S = 2.0  # that a session may be above its quota before a process is ended
CALM_S = 5.0  # that a session is below its quota before an event reports it
_LOOK_S = 0.5  # between two looks at least, however many sweeps of the session ask for them
_PAUSE_S = 0.1  # between two looks of a node run that waits
_STEP = 1 << 20  # bytes; smaller changes are recorded with the next heartbeat only


class SessionMemory:
    """The memory that node processes of a runner use, and the memory quota of their session. Threads share it.

    Above the quota no node run begins, in any runner. After GRACE_S, the runner with the largest process ends it,
    and then begins no more node runs at a time than fitted.

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
        self._max_running: int | None = None  # node runs at a time, once a process was ended; None for any number
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
        """Stop measuring those of this executor. With the last executor, the recorded memory is removed."""
        with self._lock:
            self._codes.remove(code)
            is_last = not self._codes
        if is_last:
            with suppress(StoreError):  # it counts no longer than a lease
                self._record(None)

    @property
    def is_tight(self) -> bool:
        """True if a node run may have to wait."""
        return self.reason is not None or self._max_running is not None

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
                # Checked and counted under one lock, so that two node runs cannot take the last place.
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
        return self.reason is None and (self._max_running is None or self._running < self._max_running)

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
            self.reason = self._max_running = self._above_since = None
            return
        processes = self._measured()
        busy = [process for process in processes if process.is_busy]
        mine = Memory(sum(process.size for process in processes), max((process.size for process in busy), default=0))
        self._record(mine)
        other_memory = memory_of_others(self._database, self._session_id, self._runner_id, alive=is_not_dead)
        used = mine.used + other_memory.used
        if used <= allowed.quota:
            self._open(allowed, used, mine)
        else:
            self._close(allowed, used, now)
            # Idle processes go first, because nothing is lost with them. Runners compare their largest process, so that
            # one ends.
            is_due = self._above_since is not None and now - self._above_since >= GRACE_S
            if not self._end_idle() and is_due and busy and mine.largest >= other_memory.largest:
                self._end_largest(allowed, used, max(busy, key=lambda process: process.size))

    def _measured(self) -> list[Measured]:
        with self._lock:
            codes = list(self._codes)
        return [process for code in codes for process in code.measure(tree_memory)]

    def _record(self, memory: Memory | None) -> None:
        """Record the used memory for other runners, if it differs."""
        before = self._recorded
        if memory is None or before is None:
            is_same = memory is before
        else:
            changes = memory.used - before.used, memory.largest - before.largest
            is_same = all(abs(change) < _STEP for change in changes)
            # Recorded again in time even if nothing changed: other runners count a figure for no longer than a lease.
            is_same = is_same and time.monotonic() - self._recorded_at < LEASE_S / 3
        if not is_same:
            record_memory(self._database, self._runner_id, self._session_id, memory)
            self._recorded, self._recorded_at = memory, time.monotonic()

    def _open(self, allowed: Allowed, used: int, mine: Memory) -> None:
        """Let node runs begin: one more at a time than so far, if there is room for another one like the largest."""
        with self._lock:
            self.reason = self._above_since = None
            if (
                self._max_running is not None
                and self._running >= self._max_running
                and used + mine.largest <= allowed.quota
            ):
                self._max_running += 1

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
            self._max_running = max(1, min(self._running, self._max_running or self._running) - 1)
        largest.end(
            f"its process was ended: the node processes of session {allowed.session!r} used {bytes_of(used)} of its "
            f"memory quota of {bytes_of(allowed.quota)}, and this one, with {bytes_of(largest.size)}, was the largest; "
            f"use less memory or raise the quota with `wtb admin session change {shlex.quote(allowed.session)} "
            "--memory SIZE`"
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


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.005, 0.2  # between two questions to the database
GROWTH = 1.15  # of the pause: a seventh of what has been waited for, so that waiting costs little more than it must
AGAIN_S = 1.0  # before another try to release permits in the database


class Permits:
    """`limit=` and `rate=` of nodes: at most so many runs at a time, or starts a second, in the whole database."""

    def __init__(self, workflow: WorkflowFacts, stop: Stop, database: Database, runner_id: str) -> None:
        self._stop = stop
        limited = {node.name: node.rules for node in workflow.nodes.values() if node.rules.limit or node.rules.rate}
        self._limits = {name: rules.limit for name, rules in limited.items()}
        self._spacing = {name: 1.0 / rules.rate if rules.rate else None for name, rules in limited.items()}
        self._permits = {name: _permit(database, Place(workflow.name, name, runner_id)) for name in limited}

    @contextmanager
    def through(self, node: str) -> Iterator[None]:
        """Wait for a turn of `node`. Raises Stopped when a stop is requested meanwhile, StoreError."""
        permit = self._permits.get(node)
        if permit is None:
            yield
            return
        limit = self._limits[node]
        permit.enter(limit, self._spacing[node], self._stop)
        try:
            yield
        finally:
            if limit is not None:
                permit.leave()


class _Permit:
    """The permit of a node in this process, shared by the sweeps of its runner.

    Threads wait in a line, and only the first one queries the database. Held permits are counted here and written as
    a total, not as a difference, so that the next write corrects a lost one.
    """

    def __init__(self, database: Database, place: Place) -> None:
        self._database = database
        self._place = place
        self._is_created = False
        self._line: deque[threading.Event] = deque()
        self._line_changes = threading.Lock()
        self._wanting = 0  # threads that wait for a permit
        self._permit_count = 0
        self._writes = threading.Lock()  # of `_permit_count`, here and in the database
        self._unsure = False  # whether the database may have something else

    def enter(self, limit: int | None, spacing_s: float | None, stop: Stop) -> None:
        """Wait for a permit, then for the turn. Raises Stopped, StoreError; the permit is released then."""
        wanting = int(limit is not None)
        try:
            with self._first_in_line(stop, wanting) as woken:
                self._pass(limit, spacing_s, stop, woken)
        except BaseException:
            if wanting:
                self._give_up()
            raise

    def leave(self) -> None:
        """Return a permit. If the database is out of reach, this is written later."""
        with self._writes:
            self._permit_count -= 1
            self._write()
        self._wake()

    @contextmanager
    def _first_in_line(self, stop: Stop, wanting: int) -> Iterator[threading.Event]:
        """Wait in the line of this process; the block runs while the caller is first. Raises Stopped."""
        woken = threading.Event()
        with self._line_changes:
            self._line.append(woken)
            self._wanting += wanting
        try:
            while self._line[0] is not woken:
                woken.wait(LONGEST_PAUSE_S)
                woken.clear()
                stop.check()
            yield woken
        finally:
            with self._line_changes:
                self._line.remove(woken)
                self._wanting -= wanting
            self._wake()

    def _wake(self) -> None:
        """Wake the first thread in line."""
        with self._line_changes:
            if self._line:
                self._line[0].set()

    def _pass(self, limit: int | None, spacing_s: float | None, stop: Stop, woken: threading.Event) -> None:
        """As first in line, wait until there is a permit, then wait for the turn. Raises Stopped, StoreError."""
        pause = FIRST_PAUSE_S
        while (turn_s := self._ask(limit, spacing_s)) is None:
            pause = FIRST_PAUSE_S if woken.wait(pause) else min(LONGEST_PAUSE_S, pause * GROWTH)
            woken.clear()
            stop.check()
        try:
            # First in line meanwhile, so that a stop wastes one turn only. The permit helps nobody before the turn.
            stop.wait(turn_s)
        except BaseException:
            if limit is not None:
                self.leave()
            raise

    def _ask(self, limit: int | None, spacing_s: float | None) -> float | None:
        """Query the database once. Returns the seconds until the turn, or None if no permit is free."""
        with self._writes:
            if limit is not None and self._permit_count >= limit:
                return None
            try:
                if not self._is_created:
                    make_place(self._database, self._place)
                    self._is_created = True
                turn_s = ask(
                    self._database,
                    self._place,
                    self._permit_count,
                    Limits(limit, spacing_s),
                    fresh_s=LEASE_S,
                    alive=is_not_dead,
                )
            except StoreError:
                if limit is not None:
                    self._write_later()
                raise
            if turn_s is not None and limit is not None:
                self._permit_count += 1
            return turn_s

    def _give_up(self) -> None:
        """Leave the line of runners if no thread here waits for the node or runs it."""
        with self._writes:
            if self._permit_count == 0 and not self._wanting:
                self._write()

    def _write(self) -> None:
        """Write how many permits this runner holds; if that fails, retry it later."""
        if not self._try_to_write():
            self._write_later()

    def _try_to_write(self) -> bool:
        """Write how many permits this runner holds. Returns False if the database is out of reach."""
        try:
            hold(self._database, self._place, self._permit_count, waiting=self._wanting > 0)
        except StoreError:
            return False
        except ConflictError:
            pass  # the runner was removed, and its permits with it
        return True

    def _write_later(self) -> None:
        """Retry the write of released permits: others would wait for ever for the permits of a live runner."""
        if not self._unsure:
            self._unsure = True
            threading.Thread(target=self._make_good, name="wtb-permit", daemon=True).start()

    def _make_good(self) -> None:
        """The body of the thread that retries until the database has the right count."""
        while self._unsure:
            time.sleep(AGAIN_S)
            with self._writes:
                self._unsure = not self._try_to_write()


_permits: WeakValueDictionary[Place, _Permit] = WeakValueDictionary()
_permits_change = threading.Lock()


def _permit(database: Database, place: Place) -> _Permit:
    with _permits_change:
        permit = _permits.get(place)
        if permit is None:
            permit = _permits[place] = _Permit(database, place)
        return permit
