"""What a storm has left, counted in the database, the process table and the project's folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.plan import LEASE_S, SCHEDULER_INTERVAL_S
from tests.chaos.recovery import FREED, percentile
from tests.chaos.workflow import accepted, begun
from tests.support.invariants import directories_left, events_by_kind, processes_left
from tests.support.project import Project

ALLOWED_S = LEASE_S + SCHEDULER_INTERVAL_S + 1.0  # from the kill of a worker until its work is free for others


@dataclass(frozen=True)
class Figures:
    """One storm. times: seconds until work went on, by what they are of.

    begun: node runs that began; repeated: those of them that began again. orphaned: processes and directories.
    by_hand: faults after which a person was needed.
    """

    name: str
    faults: Mapping[str, int]
    seconds: float
    cells: int
    lost: int
    doubled: int
    stale: int
    orphaned: int
    begun: int
    repeated: int
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_hand: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled, accepted too late or left behind."""
        return not (self.lost or self.doubled or self.stale or self.orphaned)

    @property
    def is_well(self) -> bool:
        """Whether it is clean, and the work of the killed was free in time after 99 of 100 kills."""
        freed = self.times.get(FREED, ())
        return self.is_clean and not (freed and percentile(freed, 0.99) > ALLOWED_S)


def figures(
    name: str,
    project: Project,
    cells: int,
    *,
    faults: Mapping[str, int],
    seconds: float,
    times: Mapping[str, Sequence[float]],
    stale: int = 0,
    left: Sequence[str] = (),
    by_hand: int = 0,
) -> Figures:
    """Count, when all runners have ended. left: other processes that outlived what started them."""
    succeeded = project.query("SELECT count(*) FROM cells WHERE status = 'succeeded'")[0][0]
    started, taken = len(begun(project)), accepted(project)
    return Figures(
        name=name,
        faults=faults,
        seconds=seconds,
        cells=cells,
        lost=cells - succeeded,
        doubled=_doubled(project),
        stale=stale,
        orphaned=len(left) + len(processes_left(project)) + len(directories_left(project)),
        begun=started,
        repeated=started - len(taken),
        times={what: tuple(values) for what, values in times.items()},
        by_hand=by_hand,
    )


def _doubled(project: Project) -> int:
    """Outcomes, accepted attempts and steps beyond the one that each may have."""
    each_once = (
        "SELECT execution_id, kind, data FROM events WHERE kind LIKE 'cell.%'",
        "SELECT case_number, repeat, combination FROM cells WHERE status = 'succeeded'",
        "SELECT node_run_id FROM attempts WHERE status = 'succeeded'",
        "SELECT checkpoint_id, task, variant FROM node_runs",
        "SELECT parent_id, writers FROM checkpoints WHERE parent_id IS NOT NULL",
    )
    found = 0
    for query in each_once:
        rows = Counter(json.dumps(row, sort_keys=True, default=str) for row in project.query(query))
        found += rows.total() - len(rows)
    outcomes = sum(count for kind, count in events_by_kind(project).items() if kind.startswith("cell."))
    cells = project.query("SELECT count(*) FROM cells")[0][0]
    return int(found + max(0, outcomes - cells))
