"""Limits and rates of nodes, which hold for all runs and workers on one database."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from wtb.authoring.workflow_facts import WorkflowFacts
from wtb.core.errors import ConflictError, StoreError
from wtb.core.stop import Stop
from wtb.store.database import Database
from wtb.store.limits.node_limits import Limits, Place, ask, hold, make_place
from wtb.store.process_identity import is_not_dead
from wtb.store.runs.slots import LEASE_S

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

    Threads wait in a line; only the first one asks the database. What the runner holds is counted here and written as
    it is, not as a difference, so that a lost write is made good by the next one.
    """

    def __init__(self, database: Database, place: Place) -> None:
        self._database = database
        self._place = place
        self._made = False
        self._line: deque[threading.Event] = deque()
        self._line_changes = threading.Lock()
        self._wanting = 0  # threads that wait for a permit
        self._held = 0
        self._writes = threading.Lock()  # of `_held`, here and in the database
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
        """Give a permit back. Where the database is out of reach, that is made good later."""
        with self._writes:
            self._held -= 1
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
        """Have the first in line look again."""
        with self._line_changes:
            if self._line:
                self._line[0].set()

    def _pass(self, limit: int | None, spacing_s: float | None, stop: Stop, woken: threading.Event) -> None:
        """As first in line, ask for a permit until there is one, then wait for the turn. Raises Stopped, StoreError."""
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
        """Ask the database once. Returns the seconds until the turn, or None if no permit is free."""
        with self._writes:
            if limit is not None and self._held >= limit:
                return None
            try:
                if not self._made:
                    make_place(self._database, self._place)
                    self._made = True
                turn_s = ask(
                    self._database,
                    self._place,
                    self._held,
                    Limits(limit, spacing_s),
                    fresh_s=LEASE_S,
                    alive=is_not_dead,
                )
            except StoreError:
                if limit is not None:  # nobody knows whether it was committed
                    self._write_later()
                raise
            if turn_s is not None and limit is not None:
                self._held += 1
            return turn_s

    def _give_up(self) -> None:
        """Leave the line of runners if no thread here waits for the node or runs it."""
        with self._writes:
            if self._held == 0 and not self._wanting:
                self._write()

    def _write(self) -> None:
        """Write how many permits this runner holds; if that fails, retry it later."""
        try:
            hold(self._database, self._place, self._held, waiting=self._wanting > 0)
        except StoreError:
            self._write_later()
        except ConflictError:
            pass  # the runner was removed, and its permits with it

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
                try:
                    hold(self._database, self._place, self._held, waiting=self._wanting > 0)
                except StoreError:
                    continue
                except ConflictError:
                    pass
                self._unsure = False


_permits: WeakValueDictionary[Place, _Permit] = WeakValueDictionary()
_permits_change = threading.Lock()


def _permit(database: Database, place: Place) -> _Permit:
    with _permits_change:
        permit = _permits.get(place)
        if permit is None:
            permit = _permits[place] = _Permit(database, place)
        return permit
