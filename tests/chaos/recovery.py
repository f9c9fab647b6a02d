"""The time until work continues: that of a killed worker, and any work after a server was away."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.chaos.plan import LEASE_S, SCHEDULER_INTERVAL_S
from tests.support.attempts import ATTEMPTS
from tests.support.project import Project

ACCEPTED = f"SELECT count(*) FROM {ATTEMPTS} WHERE status = 'succeeded'"

TAKEN_UP = "work of a killed worker: until another worker has it"
FREED = "work of a killed worker: until it is free to be taken"
ALLOWED_S = LEASE_S + SCHEDULER_INTERVAL_S + 1.0  # from the kill of a worker until its work is free for others
FREED_LATER = "the same where PostgreSQL was away meanwhile, after which leases last a while"


@dataclass
class Watch:
    """One kill: the executions that were held then, by their token.

    is_disturbed: PostgreSQL was away meanwhile. is_overdue: `overdue` of the recovery has been called.
    """

    tokens: dict[str, int]
    since: float = field(default_factory=time.monotonic)
    at: float = field(default_factory=time.time)
    is_free: bool = False
    is_disturbed: bool = False
    is_overdue: bool = False


class Recovery:
    """Watches whenever it is asked to look.

    times: seconds by what they are of. overdue: called once for each killed worker whose work is not free in time.
    """

    def __init__(self, project: Callable[[], Project], overdue: Callable[[], None] = lambda: None) -> None:
        self._project = project
        self._overdue = overdue
        self._watches: list[Watch] = []
        self._progress: list[tuple[str, float, int]] = []
        self.times: dict[str, list[float]] = defaultdict(list)

    def watch(self, tokens: dict[str, int]) -> None:
        """From now on what a killed worker held. held: execution -> token, of at least one."""
        self._watches.append(Watch(tokens))

    def progress(self, fault: str, since: float | None = None) -> None:
        """From now on, or since then, after the end of a fault: until the next node run is accepted."""
        ((accepted,),) = self._project().query(ACCEPTED)
        self._progress.append((fault, since or time.monotonic(), accepted))

    def disturb(self) -> None:
        """PostgreSQL goes away: leases last until it has been back for a while, since nobody can renew them."""
        for watch in self._watches:
            watch.is_disturbed = True

    def look(self) -> None:
        if self._progress:
            ((accepted,),) = self._project().query(ACCEPTED)
            now = time.monotonic()
            for fault, since, before in self._progress:
                if accepted > before:
                    self.times[fault].append(now - since)
            self._progress = [(fault, since, before) for fault, since, before in self._progress if accepted <= before]
        if self._watches:
            self._look_at_the_killed()

    @property
    def is_waiting(self) -> bool:
        """True if something has not continued yet."""
        return bool(self._progress or self._watches)

    def _look_at_the_killed(self) -> None:
        query = "SELECT id, token, status FROM executions WHERE id = ANY(:ids)"
        ids = [id for watch in self._watches for id in watch.tokens]
        rows = {id: (token, status) for id, token, status in self._project().query(query, ids=ids)}
        now = time.monotonic()
        waiting = []
        for watch in self._watches:
            moved = [rows[id][1] for id, token in watch.tokens.items() if rows[id][0] > token]
            if moved and not watch.is_free:
                watch.is_free = True
                self.times[FREED_LATER if watch.is_disturbed else FREED].append(self._freed_after(watch))
            if not (watch.is_free or watch.is_disturbed or watch.is_overdue) and now - watch.since > ALLOWED_S:
                watch.is_overdue = True
                self._overdue()
            if any(status != "pending" for status in moved):
                self.times[TAKEN_UP].append(now - watch.since)
            else:
                waiting.append(watch)
        self._watches = waiting

    def _freed_after(self, watch: Watch) -> float:
        """By the clock of whoever took it back: this process may have waited for a server just then."""
        query = (
            "SELECT min(at) FROM events WHERE kind = 'execution.taken_back' AND execution_id = ANY(:ids) AND at > :at"
        )
        ((at,),) = self._project().query(query, ids=list(watch.tokens), at=watch.at)
        return time.monotonic() - watch.since if at is None else float(at) - watch.at


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
