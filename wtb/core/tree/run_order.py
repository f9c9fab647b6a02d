"""The order in which what is compared begins: random, so that nobody is always first, and the same in every run.

Whoever begins first pays for what is not warm yet, and meets a machine in another state than the last. The order comes
from the seed that the sweep records, so it is known afterwards, and does not depend on who runs what.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from wtb.core.tree.checkpoints import NodeTask

T = TypeVar("T")


def mixed(things: Iterable[T], *place: object) -> list[T]:
    """Return things in an order that depends only on the place: the sweep's seed, and a position in the sweep."""
    # A hash of the text and no hash of Python's, which differs between processes.
    shuffled = list(things)
    if len(shuffled) > 1:
        random.Random(hashlib.sha256(repr(place).encode()).digest()).shuffle(shuffled)
    return shuffled


def case_order(clusters: Sequence[str | None], seed: int, firsts: Sequence[int] = ()) -> list[int]:
    """Return the numbers of a sweep's cases in the order in which they begin, those of a cluster together.

    The order depends on the seed and on the set of cases, so it is known for every sweep, and no result can change it:
    the first cases in this order are a random sample, however quick each was.

    Args:
        clusters: The cluster of each case, None for no cluster.
        seed: The seed of the sweep.
        firsts: The places in `clusters` at which later additions begin; these come after the cases before them.
    """
    if firsts:
        # Each addition is shuffled by itself, so that the order of earlier cases never changes.
        ends = [0, *firsts, len(clusters)]
        parts = [clusters[start:end] for start, end in itertools.pairwise(ends)]
        return [start + place for start, part in zip(ends, parts, strict=False) for place in case_order(part, seed)]
    if not any(clusters):
        return mixed(range(len(clusters)), seed, 0)
    units: dict[object, list[int]] = {}
    # A case without a cluster is a unit of its own; a tuple cannot equal the name of a cluster.
    for number, name in enumerate(clusters):
        units.setdefault(name or (number,), []).append(number)
    return [number for unit in mixed(units.values(), seed, 0) for number in unit]


def is_held_out(share: float, seed: int, case: str, cluster: str | None) -> bool:
    """Return whether a case is held out for the end: about a share of all cases, in whole clusters.

    It depends on the seed and the case's name alone, so that it does not change when others are added.
    """
    place = (seed, "cluster", cluster) if cluster else (seed, "case", case)
    return _drawn(place) < share * 2**64


def place_of(seed: int, case: str) -> int:
    """Return the place of a case in a random order of all cases, from 0 to 2**64: the first are a random sample.

    It depends on the seed and the case's name alone.
    """
    return _drawn((seed, "sample", case))


def _drawn(place: tuple[object, ...]) -> int:
    return int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:8])


Choices = tuple[str, ...]
TaskVariant = tuple[NodeTask, str]  # a task, and the variant of its node


def groups(
    nodes: Sequence[str], combinations: Sequence[int], variant_of: Callable[[int, str], str]
) -> dict[Choices, list[int]]:
    """Group combinations by the variants that they choose for the next nodes, in order of first appearance.

    With one group, the execution continues. With several, it forks, and each group continues as an execution of its
    own.
    """
    by_choices: dict[Choices, list[int]] = {}
    for number in combinations:
        by_choices.setdefault(tuple(variant_of(number, node) for node in nodes), []).append(number)
    return by_choices


def agreed(choices: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variants that several combinations agree on, by node."""
    first = choices[0]
    return {node: variant for node, variant in first.items() if all(choice[node] == variant for choice in choices)}


def task_variants(tasks: Sequence[NodeTask], choices: Choices) -> list[TaskVariant]:
    """Return the tasks of a step with the variants of one group, one variant for each node."""
    if len(tasks) == len(choices):  # no node has several
        return list(zip(tasks, choices, strict=True))
    variants = dict(zip(dict.fromkeys(task.node for task in tasks), choices, strict=True))
    return [(task, variants[task.node]) for task in tasks]


def node_runs(tasks: Sequence[NodeTask], grouped: Mapping[Choices, Sequence[int]]) -> dict[TaskVariant, int]:
    """Return the distinct (task, variant) of a step, each to be run once, with the number of cells that share it."""
    cells: dict[TaskVariant, int] = {}
    for choices, members in grouped.items():
        for task_variant in task_variants(tasks, choices):
            cells[task_variant] = cells.get(task_variant, 0) + len(members)
    return cells
