"""The workers of the long run, and a supervisor that starts another one for each that has died."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.chaos.plan import SCHEDULER_INTERVAL_S
from tests.support.cluster import Cluster, Member
from tests.support.invariants import kill

KINDS: tuple[tuple[str, int], ...] = (("process", 4), ("prefork", 2), ("threads", 2))  # pool, slots


@dataclass(frozen=True)
class Victim:
    """A process that runs executions. runners: its own, and those of its children."""

    pid: int
    runners: tuple[str, ...]


class Fleet:
    """Workers of both pools and two schedulers. Whoever waits for something calls `mend` while it does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workers = [cluster.start_worker(pool=pool, concurrency=slots, ready=False) for pool, slots in KINDS]
        self._schedulers: list[Member] = [cluster.start_scheduler(SCHEDULER_INTERVAL_S) for _ in range(2)]
        cluster.wait_ready()

    def mend(self) -> None:
        """Start what has died again. Does not wait for it."""
        for place, (worker, (pool, slots)) in enumerate(zip(self._workers, KINDS, strict=True)):
            if not worker.lives:
                self._workers[place] = self._cluster.start_worker(pool=pool, concurrency=slots, ready=False)
        for place, scheduler in enumerate(self._schedulers):
            if not scheduler.lives:
                self._schedulers[place] = self._cluster.start_scheduler(SCHEDULER_INTERVAL_S)

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

    def node_processes(self) -> tuple[list[int], list[int]]:
        """(reapers, what they keep) of all workers at this moment."""
        reapers, nodes = list[int](), list[int]()
        for worker in self._workers:
            for pid in worker.family():
                with suppress(psutil.Error):
                    process = psutil.Process(pid)
                    if "reaper.py" in " ".join(process.cmdline()[:3]):
                        (reapers if process.ppid() in worker.hosts() else nodes).append(pid)
        return reapers, nodes

    def kill_a_scheduler(self, dice: random.Random) -> None:
        kill(dice.choice(self._schedulers).pid)

    def held_by(self, victim: Victim) -> dict[str, int]:
        """Execution -> token, of what a victim holds now."""
        query = "SELECT id, token FROM executions WHERE status = 'running' AND owner_id = ANY(:runners)"
        return dict(self._cluster.query(query, runners=list(victim.runners)))
