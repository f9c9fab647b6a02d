"""What a storm has left, counted in the database, the process table and the project's folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.drawn.judge import EXAMPLES, Verdict
from tests.chaos.drawn.record import accepted, begun
from tests.chaos.drawn.scenario import Scenario
from tests.chaos.plan import LEASE_S, SCHEDULER_INTERVAL_S
from tests.chaos.recovery import FREED, percentile
from tests.support.invariants import directories_left, processes_left
from tests.support.project import Project

ALLOWED_S = LEASE_S + SCHEDULER_INTERVAL_S + 1.0  # from the kill of a worker until its work is free for others


@dataclass(frozen=True)
class Figures:
    """One storm. times: seconds until work went on, by what they are of.

    begun: node runs that began; repeated: those of them that began again. orphaned: processes and directories.
    by_hand: faults after which a person was needed. examples: the first of what is not as it must be, in words.
    """

    name: str
    faults: Mapping[str, int]
    seconds: float
    cells: int
    lost: int
    doubled: int
    wrong: int
    stale: int
    orphaned: int
    begun: int
    repeated: int
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_hand: int = 0
    examples: Sequence[str] = ()

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, doubled, wrong, accepted too late or left behind."""
        return not (self.lost or self.doubled or self.wrong or self.stale or self.orphaned)

    @property
    def is_well(self) -> bool:
        """Whether it is clean, and the work of the killed was free in time after 99 of 100 kills."""
        freed = self.times.get(FREED, ())
        return self.is_clean and not (freed and percentile(freed, 0.99) > ALLOWED_S)


def figures(
    name: str,
    project: Project,
    scenarios: Sequence[Scenario],
    verdict: Verdict,
    *,
    faults: Mapping[str, int],
    seconds: float,
    times: Mapping[str, Sequence[float]],
    stale: Collection[str] = (),
    left: Sequence[str] = (),
    by_hand: int = 0,
) -> Figures:
    """Count, when all runners have ended. left: other processes that outlived what started them."""
    started, taken = len(begun(project, scenarios)), accepted(project)
    orphans = [*left, *processes_left(project), *directories_left(project)]
    examples = [*verdict.examples(), *(f"stale: {mark}" for mark in [*stale][:EXAMPLES])]
    return Figures(
        name=name,
        faults=faults,
        seconds=seconds,
        cells=sum(scenario.cells for scenario in scenarios),
        lost=len(verdict.lost),
        doubled=len(verdict.doubled),
        wrong=len(verdict.wrong),
        stale=len(stale),
        orphaned=len(orphans),
        begun=started,
        repeated=started - len(taken),
        times={what: tuple(values) for what, values in times.items()},
        by_hand=by_hand,
        examples=(*examples, *(f"orphaned: {orphan}" for orphan in orphans[:EXAMPLES])),
    )
