"""How long the work of a killed worker waits: until it is free for others, and until one of them has claimed it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.cluster import Cluster


@dataclass
class Watch:
    """One kill: the executions that were held then, by their token. Seconds since the kill, once they are known."""

    held: dict[str, int]
    since: float = field(default_factory=time.monotonic)
    freed: float | None = None
    claimed: float | None = None


class Recovery:
    """Watches the executions of killed workers, whenever it is asked to look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: list[Watch] = []
        self.watches: list[Watch] = []

    def watch(self, held: dict[str, int]) -> None:
        """From now on. held: execution -> token, of at least one."""
        made = Watch(held)
        self._open.append(made)
        self.watches.append(made)

    def look(self) -> None:
        wanted = [id for watch in self._open for id in watch.held]
        if not wanted:
            return
        query = "SELECT id, token, status FROM executions WHERE id = ANY(:ids)"
        rows = {id: (token, status) for id, token, status in self._cluster.query(query, ids=wanted)}
        now = time.monotonic()
        for watch in self._open:
            moved = [rows[id][1] for id, token in watch.held.items() if rows[id][0] > token]
            if moved and watch.freed is None:
                watch.freed = now - watch.since
            if any(status != "pending" for status in moved):
                watch.claimed = now - watch.since
        self._open = [watch for watch in self._open if watch.claimed is None]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
