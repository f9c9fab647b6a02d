"""What a storm has left, counted in the database, the process table and the project's folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.plan import Plan
from tests.chaos.recovery import Watch, percentile
from tests.faults.cluster import LEASE_S, TICK_S, Cluster
from tests.faults.invariants import directories_left

ALLOWED_S = LEASE_S + TICK_S + 1.0  # from a kill until work goes on


@dataclass(frozen=True)
class Figures:
    """All times in seconds.

    freed, claimed: from each kill until what was held could be claimed again, and was. All slots are busy with other
    work most of the time, so that the second depends on what they are in.
    """

    plan: Plan
    seconds: float
    lost: int
    doubled: int
    stale: int
    processes: int
    directories: int
    taken_back: int
    executed: int
    freed: tuple[float, ...]
    claimed: tuple[float, ...]

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled, accepted too late or left behind."""
        return not (self.lost or self.doubled or self.stale or self.processes or self.directories)

    @property
    def is_well(self) -> bool:
        """Whether it is clean, and nobody had to wait for longer than allowed after 99 of 100 kills."""
        return self.is_clean and percentile(self.freed, 0.99) <= ALLOWED_S

    def lines(self) -> list[str]:
        plan = self.plan
        return [
            f"{plan.cells:,} cells in {self.seconds:.0f} s: {plan.kills} kills, {plan.zombies} zombies, "
            f"{plan.flushes} FLUSHALLs, {plan.crashes} crashes of each server (seed {plan.seed})",
            f"cells lost {self.lost}, doubled {self.doubled}; stale writes accepted {self.stale}",
            f"left behind: processes {self.processes}, directories {self.directories}",
            f"leases that ran out {self.taken_back}; attempts of node runs {self.executed}",
            f"kill to work going on: {_spread(self.claimed)} (free to be claimed: {_spread(self.freed)}); "
            f"lease + tick + 1 s = {ALLOWED_S:.1f} s",
        ]


def _spread(values: Sequence[float]) -> str:
    return f"p50 {percentile(values, 0.5):.2f} s, p99 {percentile(values, 0.99):.2f} s"


def figures(cluster: Cluster, plan: Plan, watches: Sequence[Watch], stale: int, seconds: float) -> Figures:
    """Count, when all workers have ended."""
    cells = cluster.cells()
    started = "SELECT count(*) FROM events WHERE kind = 'node_run.started'"
    return Figures(
        plan,
        seconds,
        lost=plan.cells - cells["succeeded"],
        doubled=_doubled(cluster),
        stale=stale,
        processes=len(cluster.processes_left()),
        directories=len(directories_left(cluster.project)),
        taken_back=len(cluster.events("execution.taken_back")),
        executed=cluster.one(started),
        freed=tuple(watch.freed for watch in watches if watch.freed is not None),
        claimed=tuple(watch.claimed for watch in watches if watch.claimed is not None),
    )


def _doubled(cluster: Cluster) -> int:
    """Outcomes, accepted attempts and steps beyond the one that each may have."""
    each_once = (
        "SELECT execution_id, data->>'combination' FROM events WHERE kind LIKE 'cell.%'",
        "SELECT case_number, repeat, combination FROM cells WHERE status = 'succeeded'",
        "SELECT node_run_id FROM attempts WHERE status = 'succeeded'",
        "SELECT checkpoint_id, task, variant FROM node_runs",
        "SELECT parent_id, writers::text FROM checkpoints WHERE parent_id IS NOT NULL",
    )
    found = 0
    for query in each_once:
        rows = cluster.query(query)
        found += len(rows) - len(set(rows))
    outcomes = cluster.one("SELECT count(*) FROM events WHERE kind LIKE 'cell.%'")
    return int(found + max(0, outcomes - cluster.cells().total()))
