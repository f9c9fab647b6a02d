"""The workers of the long run, and a supervisor that starts another one for each that has died."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.cluster import Cluster, Member

KINDS: tuple[tuple[str, int], ...] = (("prefork", 2), ("prefork", 2), ("threads", 4))  # pool, slots


@dataclass(frozen=True)
class Victim:
    """A process that runs executions. runners: its own, and those of its children."""

    pid: int
    runners: tuple[str, ...]


class Fleet:
    """Workers of both pools and two ticks. Whoever waits for something calls `mend` while it does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workers = [cluster.start_worker(pool=pool, concurrency=slots, ready=False) for pool, slots in KINDS]
        self._ticks: list[Member] = [cluster.start_tick() for _ in range(2)]
        cluster.wait_ready()

    def mend(self) -> None:
        """Start what has died again. Does not wait for it."""
        for place, (worker, (pool, slots)) in enumerate(zip(self._workers, KINDS, strict=True)):
            if not worker.lives:
                self._workers[place] = self._cluster.start_worker(pool=pool, concurrency=slots, ready=False)
        for place, tick in enumerate(self._ticks):
            if not tick.lives:
                self._ticks[place] = self._cluster.start_tick()

    def is_ready(self) -> bool:
        return all(worker.ready for worker in self._workers)

    def victims(self, *, parents: bool) -> list[Victim]:
        """Processes that hold executions now: workers as a whole, or the children that hold them."""
        busy = {owner for (owner,) in self._cluster.query("SELECT owner_id FROM executions WHERE status = 'running'")}
        found = []
        for worker in self._workers:
            runners = {runner: pid for runner, pid in worker.runners().items() if runner in busy}
            if parents and runners:
                found.append(Victim(worker.pid, tuple(runners)))
            if not parents:
                found += [Victim(pid, (runner,)) for runner, pid in runners.items()]
        return found

    def held_by(self, victim: Victim) -> dict[str, int]:
        """Execution -> token, of what a victim holds now."""
        query = "SELECT id, token FROM executions WHERE status = 'running' AND owner_id = ANY(:runners)"
        return dict(self._cluster.query(query, runners=list(victim.runners)))
