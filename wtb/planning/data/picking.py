"""The cases of a sweep that run: those that the part of it leaves."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import islice

from wtb.core.arguments.checking import check_fields
from wtb.core.arguments.kinds import Count
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.ids import plain_id
from wtb.core.tree.run_order import is_held_out, place_of
from wtb.planning.cases import Case, CaseSource
from wtb.planning.sweep_spec import SweepSpec


@frozen
class Only:
    """A part of a sweep: the first `limit` cases, the case `case`, the combinations that choose `choices`.

    final: the cases that `holdout` keeps for the end, else the others. sample: so many cases, drawn with the seed.
    """

    limit: Count | None = None
    case: str | None = None
    choices: Mapping[str, str] = field(default_factory=dict)
    final: bool = False
    sample: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.sample is not None and self.limit is not None:
            raise InputError(
                "both of 'limit' and 'sample'; expected one of them: the first cases, or cases drawn at random",
                argument="sample",
            )


def pick_cases(spec: SweepSpec, source: CaseSource, only: Only) -> Iterator[Case]:
    """Yield the cases that a part leaves, in their order."""
    cases = iter(source)
    if (share := spec.holdout) is not None:
        cases = (case for case in cases if is_held_out(share, spec.seed, case.id, case.cluster) == only.final)
    if only.case is not None:
        case_id = plain_id(only.case)
        cases = (case for case in cases if case.id == case_id)
    yield from islice(cases, only.limit)


def draw_sample(spec: SweepSpec, source: CaseSource, only: Only) -> tuple[CaseSource, int]:
    """Draw a random sample of the cases of a sweep.

    A case is in it by the sweep's seed and its id alone, so that a larger sample holds a smaller one, and a sample of a
    file that has grown holds most of the earlier one.

    Args:
        spec: The sweep.
        source: Its cases.
        only: The part of it; `sample` is how many to draw.

    Returns:
        The source without the other cases, and how many it was drawn from.

    Raises:
        InputError: If there are fewer cases.
    """
    size = only.sample or 0
    places = array("Q", (place_of(spec.seed, case.id) for case in pick_cases(spec, source, only)))
    if not places:  # which the check of the cases explains
        return source, 0
    if size > len(places):
        raise InputError(
            f"a sample of {size:,} cases, and {source.name} has {len(places):,} to draw from; expected at most "
            f"{len(places):,}",
            argument="sample",
        )
    last = sorted(places)[size - 1]
    return replace(source, _keeps=lambda case: place_of(spec.seed, case.id) <= last), len(places)
