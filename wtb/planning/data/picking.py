"""The cases of a sweep that run: those that the part of it leaves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from wtb.core.arguments.checking import check_fields
from wtb.core.arguments.kinds import Count
from wtb.core.tree.run_order import is_held_out
from wtb.planning.cases import Case, CaseSource
from wtb.planning.sweep_spec import SweepSpec


@dataclass(frozen=True)
class Only:
    """A part of a sweep: the first `limit` cases, the case `case`, the combinations that choose `choices`.

    final: the cases that `holdout` keeps for the end, else the others.
    """

    limit: Count | None = None
    case: str | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    final: bool = False

    def __post_init__(self) -> None:
        check_fields(self)


def pick_cases(spec: SweepSpec, source: CaseSource, only: Only) -> Iterator[Case]:
    """Yield the cases that a part leaves, in their order."""
    cases = iter(source)
    if (share := spec.holdout) is not None:
        cases = (case for case in cases if is_held_out(share, spec.seed, case.id, case.cluster) == only.final)
    if only.case is not None:
        cases = (case for case in cases if case.id == only.case)
    yield from islice(cases, only.limit)
