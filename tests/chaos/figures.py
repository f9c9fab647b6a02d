"""The figures after a storm, counted in the database, the process table and the project's folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.chaos.drawn.judge import EXAMPLES, Verdict
from tests.chaos.drawn.record import accepted, attempt_starts
from tests.chaos.drawn.scenario import Scenario
from tests.chaos.recovery import ALLOWED_S, FREED, percentile
from tests.support.invariants import directories_left, processes_left
from tests.support.project import Project


@dataclass(frozen=True)
class Figures:
    """One storm. times: seconds until work went on, by what they are of.

    node_runs: node runs that began; repeated: those of them that began again. orphaned: processes and directories.
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
    node_runs: int
    repeated: int
    times: Mapping[str, Sequence[float]] = field(default_factory=dict)
    by_hand: int = 0
    examples: Sequence[str] = ()

    def leaving(self, orphans: Sequence[str]) -> Figures:
        """Return these figures with what outlived its owner."""
        examples = [f"orphaned: {orphan}" for orphan in orphans[:EXAMPLES]]
        return replace(self, orphaned=len(orphans), examples=(*self.examples, *examples))

    @property
    def is_clean(self) -> bool:
        """True if nothing was lost, doubled, wrong, accepted too late or left behind."""
        return not (self.lost or self.doubled or self.wrong or self.stale or self.orphaned)

    @property
    def is_well(self) -> bool:
        """True if it is clean, and the work of the killed was free in time after 99 of 100 kills."""
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
    by_hand: int = 0,
) -> Figures:
    """Count all but what outlived its owner, which `leaving` adds when all runners have ended."""
    started, accepted_runs = len(attempt_starts(project, scenarios)), accepted(project)
    return Figures(
        name=name,
        faults=faults,
        seconds=seconds,
        cells=sum(scenario.cells for scenario in scenarios),
        lost=len(verdict.lost),
        doubled=len(verdict.doubled),
        wrong=len(verdict.wrong),
        stale=len(stale),
        orphaned=0,
        node_runs=started,
        repeated=started - len(accepted_runs),
        times={what: tuple(values) for what, values in times.items()},
        by_hand=by_hand,
        examples=(*verdict.examples(), *(f"stale: {mark}" for mark in [*stale][:EXAMPLES])),
    )


def orphans(project: Project) -> list[str]:
    """Return the processes and directories of a project's runners, in words, after all of them have ended."""
    return [*processes_left(project), *directories_left(project)]
