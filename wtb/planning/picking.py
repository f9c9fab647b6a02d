"""Selection of the cases that run."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import islice

from wtb.core.arguments import Count, check_fields
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.ids import plain_id
from wtb.core.tree.run_order import is_held_out, place_of
from wtb.planning.cases import Case, CaseSource
from wtb.planning.sweep_spec import SweepSpec


@frozen
class Only:
    """A part of a sweep.

    Attributes:
        limit: Run only so many first cases.
        case: Run only the case with this id.
        choices: Run only combinations with these variants or levels.
        final: Run the cases that `holdout` keeps for the end, instead of the others.
        sample: Run so many cases, drawn with the seed.
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
                "both 'limit' and 'sample' are given; expected one of them: the first cases, or cases drawn at random",
                argument="sample",
            )


def pick_cases(spec: SweepSpec, source: CaseSource, only: Only) -> Iterator[Case]:
    """Yield the cases of a part, in order."""
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
    # 8 bytes a case instead of the cases, which are read again afterwards.
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
    # The threshold is the place of the last drawn case, so membership needs no list of ids.
    return replace(source, _keeps=lambda case: place_of(spec.seed, case.id) <= last), len(places)
