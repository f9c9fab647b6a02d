"""What holds work back: stopping, and limits of the sweep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence

from wtb.errors import StateError, WTBError

PROCESS_DIED = "its process died"  # why a sweep waits for somebody to resume it
INTERRUPTED = "interrupted"  # the reason of a stop that a person asked for


class Stopped(WTBError):
    """No new work is started; what was committed stays and the sweep can be resumed."""


class Stop:
    """A flag that is raised once, with a reason.

    limit: the limit that was reached, where it was one. decided: the status that somebody else gave the sweep.
    """

    def __init__(self) -> None:
        self._raised = threading.Event()
        self.reason: str | None = None
        self.limit: str | None = None
        self.decided: str | None = None

    def request(self, reason: str, *, limit: str | None = None, decided: str | None = None) -> None:
        if not self._raised.is_set():
            self.reason, self.limit, self.decided = reason, limit, decided
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


class Spendable:
    """US dollars that a session may spend in all. What its other runs spend is `seen` now and then."""

    def __init__(self, session: str, quota: float, used: float) -> None:
        self.session = session
        self.quota = quota
        self.used = used


class Disk:
    """Bytes of files that a session may keep, each content once. `missing`: asks which of some are new to it."""

    def __init__(self, quota: int | None, used: int, missing: Callable[[Iterable[str]], set[str]]) -> None:
        self._quota = quota
        self._used = used
        self._missing = missing
        self._taken: set[str] = set()
        self._lock = threading.Lock()

    @property
    def left(self) -> int | None:
        return None if self._quota is None else max(0, self._quota - self._used)

    def seen(self, used: int) -> None:
        """What the session is known to use, its other runs included."""
        with self._lock:
            self._used = max(self._used, used)

    def take(self, files: Sequence[tuple[str, int]]) -> None:
        """Count files that a node left. Raises StateError where that would exceed the quota; then none counts."""
        if self._quota is None or not files:
            return
        with self._lock:
            new = self._missing(digest for digest, _ in files) - self._taken
            added = sum(size for digest, size in files if digest in new)
            if self._used + added > self._quota:
                raise StateError(
                    f"its files add {added:,} bytes, and the quota of its session ({self._quota:,} bytes) leaves "
                    f"{self.left:,}: remove what is not needed from ctx.workspace, free space with `wtb gc`, or raise "
                    f"the quota with `wtb session change`"
                )
            self._used += added
            self._taken |= new


class Limits:
    """Limits of a sweep. A node run is counted before it starts, so that a cap is a cap.

    usd counts what attempts have really spent; since the cost of a node run is known only afterwards, those that
    are under way when the limit is reached may still exceed it. wall: seconds of this run. reserve: counts a node run
    for all who run the sweep, unless it is one too many.
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
        session: Spendable | None = None,
        reserve: Callable[[int], bool] | None = None,
    ) -> None:
        self._stop = stop
        self._node_runs, self._usd = node_runs, usd
        self._wall = wall
        self._ends = None if wall is None else time.monotonic() + wall
        self._used_node_runs, self._used_usd = used_node_runs, used_usd
        self._session = session
        self._reserve = reserve
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
                said = at if name == "session" else f"limit reached: {name} = {at}"
                self._stop.request(said, limit=name)
                self._stop.check()
            self._used_node_runs += not counted

    def spend(self, usd: float) -> None:
        if usd:
            with self._lock:
                self._used_usd += usd
                if self._session is not None:
                    self._session.used += usd

    def seen(self, usd: float, of_session: float) -> None:
        """What all who run the sweep are known to have spent, and all runs of its session."""
        with self._lock:
            self._used_usd = max(self._used_usd, usd)
            if self._session is not None:
                self._session.used = max(self._session.used, of_session)

    def _one_more(self, most: int) -> bool:
        return self._used_node_runs < most if self._reserve is None else self._reserve(most)

    def _reached(self, counted: bool) -> tuple[str, str] | None:
        if self._usd is not None and self._used_usd >= self._usd:
            return "usd", f"{self._usd:g} (spent {self._used_usd:.4f})"
        session = self._session
        if session is not None and session.used >= session.quota:
            what = f"quota of session {session.session!r} reached: {session.quota:g} US dollars"
            return "session", f"{what} (spent {session.used:.4f})"
        if self._ends is not None and time.monotonic() >= self._ends:
            return "wall", f"{self._wall:g} s"
        if self._node_runs is not None and not counted and not self._one_more(self._node_runs):
            return "node_runs", str(self._node_runs)
        return None
