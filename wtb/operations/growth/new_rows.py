"""The combinations that further variants of nodes add to a sweep. Pure: no I/O."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from wtb.core.classes.frozen import frozen
from wtb.planning.sweep_spec import SweepSpec
from wtb.store.growth.fork_points import MOST_ORIGINS, NewRow, Origin

Choices = Mapping[str, str]


@frozen
class Grown:
    """What a sweep has, and what it gets.

    Attributes:
        spec: The sweep with its new variants.
        rows: The combinations that it has, each with a variant of every node that it varies from now on.
        baseline: The one that is its baseline, if any.
        added: Node -> its new variants.
    """

    spec: SweepSpec
    rows: Sequence[Choices]
    baseline: Choices | None
    added: Mapping[str, Sequence[str]]


def new_rows(grown: Grown) -> list[NewRow]:
    """Return the combinations to add.

    In each combination that is there, new variants stand in for those of their nodes, in every way; in a sweep of one
    node at a time in the baseline only, one at a time. What the sweep excludes is left out.
    """
    present = {tuple(sorted(row.items())) for row in grown.rows}
    origins: dict[tuple[tuple[str, str], ...], list[Origin]] = {}
    choices: dict[tuple[tuple[str, str], ...], Choices] = {}
    for number, row, changed in _changed(grown):
        choice = {**row, **changed}
        key = tuple(sorted(choice.items()))
        if key in present or _is_excluded(grown.spec, choice):
            continue
        choices.setdefault(key, choice)
        row_origins = origins.setdefault(key, [])
        row_origins.append(Origin(number, frozenset(changed)))
    return [
        NewRow(choice, sorted(origins[key], key=lambda origin: len(origin.changed))[:MOST_ORIGINS])
        for key, choice in choices.items()
    ]


def count_at_most(grown: Grown) -> int:
    """Return how many combinations `new_rows` gives at most; arithmetic only."""
    ways = 1
    for variants in grown.added.values():
        ways *= 1 + len(variants)
    return len(grown.rows) * (ways - 1)


def _changed(grown: Grown) -> Iterator[tuple[int, Choices, dict[str, str]]]:
    """Yield (number, row, node -> new variant) of each way in which new variants stand in."""
    one_at_a_time = grown.spec.combinations == "one-at-a-time"
    for number, row in enumerate(grown.rows):
        if one_at_a_time and grown.baseline is not None and row != grown.baseline:
            continue
        for changed in _ways(grown.added, at_most=1 if one_at_a_time else len(grown.added)):
            yield number, row, changed


def _ways(added: Mapping[str, Sequence[str]], at_most: int) -> Iterator[dict[str, str]]:
    for size in range(1, at_most + 1):
        for nodes in itertools.combinations(added, size):
            for variants in itertools.product(*(added[node] for node in nodes)):
                yield dict(zip(nodes, variants, strict=True))


def _is_excluded(spec: SweepSpec, choice: Choices) -> bool:
    rules = cast("Iterable[Mapping[str, Sequence[str]]]", spec.exclude)  # of a sweep that is bound, they are settled
    return any(all(choice.get(node) in named for node, named in rule.items()) for rule in rules)
