"""The faults of a storm in their order, which is the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

WORKER, NODE, REAPER, SCHEDULER = "worker killed", "node process killed", "reaper killed", "scheduler killed"
ZOMBIE = "worker stopped past its lease"
FLUSH, BROKER_KILLED, BROKER_STOPPED = "broker emptied", "broker killed", "broker stopped"
DATABASE_KILLED, DATABASE_STOPPED = "PostgreSQL killed", "PostgreSQL stopped"
CONNECTIONS = "all connections ended"
AWAY = "worker and scheduler started while PostgreSQL is away"
SUPERVISOR = "supervisor killed"
RUN = "`wtb run` killed"
DISK = "disk full"


# Long enough to be kept on a machine that does other things too, short enough for many losses in some minutes.
LEASE_S, SCHEDULER_INTERVAL_S = 3.0, 0.5
SETTINGS = {"WTB_LEASE_S": f"{LEASE_S:g}", "WTB_SCHEDULER_INTERVAL_S": f"{SCHEDULER_INTERVAL_S:g}"}


@dataclass(frozen=True)
class Plan:
    """The number of cells, and the number of each fault."""

    cells: int
    counts: Mapping[str, int]
    minutes: float  # after which nothing more goes wrong, on a machine that is too slow for all of it
    seed: int = 4

    def share(self, share: float) -> Plan:
        """A plan of another size, with each fault at least once. A smaller one has as much time."""
        counts = {name: max(1, round(share * count)) for name, count in self.counts.items()}
        cells, minutes = max(8, round(share * self.cells / 8) * 8), self.minutes * max(1.0, share)
        return replace(self, cells=cells, counts=counts, minutes=minutes)

    def faults(self) -> list[str]:
        """All of them, shuffled."""
        faults = [name for name, count in self.counts.items() for _ in range(count)]
        random.Random(self.seed).shuffle(faults)
        return faults


@dataclass(frozen=True)
class Storms:
    """The plans of a long run: workers of their own, the stack of `wtb up`, runs without workers, and progress."""

    workers: Plan
    stack: Plan
    embedded: Plan
    disk: Plan
    progress: Plan


LONG = Storms(
    workers=Plan(
        cells=1600,
        counts={
            WORKER: 50,
            NODE: 20,
            REAPER: 10,
            SCHEDULER: 10,
            ZOMBIE: 12,
            FLUSH: 8,
            BROKER_KILLED: 4,
            BROKER_STOPPED: 3,
            DATABASE_KILLED: 6,
            DATABASE_STOPPED: 3,
            CONNECTIONS: 8,
            AWAY: 6,
        },
        minutes=9,
    ),
    stack=Plan(
        cells=400, counts={WORKER: 4, SCHEDULER: 4, BROKER_KILLED: 2, DATABASE_KILLED: 4, SUPERVISOR: 4}, minutes=4
    ),
    embedded=Plan(cells=480, counts={RUN: 100}, minutes=5),
    disk=Plan(cells=24, counts={DISK: 3}, minutes=2),
    progress=Plan(cells=800, counts={WORKER: 30, NODE: 30}, minutes=2),
)
SHORT = Plan(
    cells=80,
    counts={WORKER: 8, NODE: 2}
    | dict.fromkeys((REAPER, SCHEDULER, ZOMBIE, FLUSH, BROKER_KILLED, CONNECTIONS, AWAY), 1),
    minutes=1.5,
    seed=6,  # a sweep without evaluators that commits each step, and one of LangGraph with evaluators beside it
)
