"""What holds work back: stopping, limits of the sweep, and limits and rates of single nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from wtb.errors import WTBError
from wtb.workflow import Workflow


class Stopped(WTBError):
    """No new work is started; what was committed stays and the sweep can be resumed."""


class Stop:
    """A flag that is raised once, with a reason. `limit` names the limit that was reached, where it was one."""

    def __init__(self) -> None:
        self._raised = threading.Event()
        self.reason: str | None = None
        self.limit: str | None = None

    def request(self, reason: str, *, limit: str | None = None) -> None:
        if not self._raised.is_set():
            self.reason, self.limit = reason, limit
            self._raised.set()

    @property
    def requested(self) -> bool:
        return self._raised.is_set()

    def check(self) -> None:
        """Raises Stopped once a stop was requested."""
        if self._raised.is_set():
            raise Stopped(self.reason or "stopped")

    def wait(self, seconds: float) -> None:
        """Sleep, unless a stop is requested. Raises Stopped."""
        if self._raised.wait(seconds):
            self.check()


class Limits:
    """Limits of a sweep. A node run is counted before it starts, so that a cap is a cap.

    usd counts what attempts have really spent; since the cost of a node run is known only afterwards, those that
    are under way when the limit is reached may still exceed it. wall: seconds of this run.
    """

    def __init__(
        self,
        stop: Stop,
        *,
        node_runs: int | None = None,
        usd: float | None = None,
        wall: float | None = None,
        used_node_runs: int = 0,
        used_usd: float = 0.0,
    ) -> None:
        self._stop = stop
        self._node_runs, self._usd = node_runs, usd
        self._wall = wall
        self._ends = None if wall is None else time.monotonic() + wall
        self._used_node_runs, self._used_usd = used_node_runs, used_usd
        self._lock = threading.Lock()

    def take_node_run(self, *, counted: bool = False) -> None:
        """Count one node run, unless an earlier claim has `counted` it.

        Raises Stopped, and stops the sweep, where a limit forbids to start it.
        """
        with self._lock:
            self._stop.check()
            reached = self._reached(counted)
            if reached is not None:
                name, at = reached
                self._stop.request(f"limit reached: {name} = {at}", limit=name)
                self._stop.check()
            self._used_node_runs += not counted

    def spend(self, usd: float) -> None:
        if usd:
            with self._lock:
                self._used_usd += usd

    def _reached(self, counted: bool) -> tuple[str, str] | None:
        if self._node_runs is not None and not counted and self._used_node_runs >= self._node_runs:
            return "node_runs", str(self._node_runs)
        if self._usd is not None and self._used_usd >= self._usd:
            return "usd", f"{self._usd:g} (spent {self._used_usd:.4f})"
        if self._ends is not None and time.monotonic() >= self._ends:
            return "wall", f"{self._wall:g} s"
        return None


class Gates:
    """`limit=` and `rate=` of nodes: at most so many runs at a time, or starts a second, in this process."""

    def __init__(self, workflow: Workflow, stop: Stop) -> None:
        self._stop = stop
        rules = {node.name: node.rules for node in workflow.nodes.values()}
        self._slots = {n: threading.Semaphore(r.limit) for n, r in rules.items() if r.limit}
        self._spacing = {n: 1.0 / r.rate for n, r in rules.items() if r.rate}
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextmanager
    def through(self, node: str) -> Iterator[None]:
        """Wait for a turn of `node`. Raises Stopped when a stop is requested meanwhile."""
        slot = self._slots.get(node)
        if slot is not None:
            while not slot.acquire(timeout=0.2):
                self._stop.check()
        try:
            if node in self._spacing:
                self._stop.wait(self._turn(node))
            yield
        finally:
            if slot is not None:
                slot.release()

    def _turn(self, node: str) -> float:
        """Seconds until this node may start again; the turn is taken."""
        with self._lock:
            present = time.monotonic()
            turn = max(present, self._next.get(node, 0.0))
            self._next[node] = turn + self._spacing[node]
            return turn - present
