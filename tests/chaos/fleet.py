"""The workers of the long run, and a supervisor that starts another one for each that has died."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.chaos.plan import SCHEDULER_INTERVAL_S
from tests.support.cluster import Cluster, Member, Worker
from tests.support.invariants import kill
from wtb.execution.sandbox.launch.process_tags import RUNNER, tag_of

SLOTS = (4, 2, 2)  # of each worker
QUEUES = ("default", "default,side", "default,side")  # so that executions move between workers, too


@dataclass(frozen=True)
class Victim:
    """A worker that holds executions, and its runners."""

    pid: int
    runners: tuple[str, ...]


class Fleet:
    """Workers and two schedulers. Whoever waits for something calls `restart_dead` while it does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._workers = [self._start(place) for place in range(len(SLOTS))]
        self._schedulers: list[Member] = [cluster.start_scheduler(SCHEDULER_INTERVAL_S) for _ in range(2)]
        cluster.wait_ready()

    def restart_dead(self) -> None:
        """Start what has died again, without waiting until it is ready."""
        for place, worker in enumerate(self._workers):
            if not worker.lives:
                self._workers[place] = self._start(place)
        for place, scheduler in enumerate(self._schedulers):
            if not scheduler.lives:
                self._schedulers[place] = self._cluster.start_scheduler(SCHEDULER_INTERVAL_S)

    def _start(self, place: int) -> Worker:
        return self._cluster.start_worker(concurrency=SLOTS[place], queues=QUEUES[place], ready=False)

    def is_ready(self) -> bool:
        return all(worker.ready for worker in self._workers)

    def victims(self) -> list[Victim]:
        """The workers that hold executions now."""
        busy = {owner for (owner,) in self._cluster.query("SELECT owner_id FROM executions WHERE status = 'running'")}
        victims = []
        for worker in self._workers:
            if runners := tuple(runner for runner in worker.runners() if runner in busy):
                victims.append(Victim(worker.pid, runners))
        return victims

    def kill_a_scheduler(self, dice: random.Random) -> None:
        kill(dice.choice(self._schedulers).pid)

    def held_by(self, victim: Victim) -> dict[str, int]:
        """Execution -> token, of what a victim holds now."""
        query = "SELECT id, token FROM executions WHERE status = 'running' AND owner_id = ANY(:runners)"
        return dict(self._cluster.query(query, runners=list(victim.runners)))


def node_processes(cluster: Cluster) -> tuple[list[int], list[int]]:
    """(reapers, what they keep) of all workers at this moment, started or forked by another process."""
    parents = dict[int, int]()
    for pid in cluster.processes():
        with suppress(psutil.Error, OSError):
            if tag_of(pid, RUNNER):
                parents[pid] = psutil.Process(pid).ppid()
    nodes = [pid for pid, parent in parents.items() if parent in parents]
    return [pid for pid in parents if pid not in nodes], nodes
