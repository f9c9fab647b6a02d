"""Sentences about the cases of a sweep: what is wrong with them, what it does to the figures, and what settles it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from wtb.core.scoring.measure import without_expected
from wtb.core.texts import listed_names, plural
from wtb.core.tree.clusters import is_of_equal_inputs
from wtb.core.tree.stored_spec import DataFinding
from wtb.planning.data.equal_inputs import EqualInputs

DOMINANT: Final = 0.3  # of the cases, in one cluster
FEWEST_UNITS: Final = 6  # clusters, below which a matrix has no test at all


def equal_inputs(equal: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    """Describe the cases that have equal inputs.

    Args:
        equal: The cases.
        ids: The id of each case, by its number.
    """
    return [*_one_cluster(equal, ids), *_apart(equal, ids), *_contradictory(equal, ids)]


def _one_cluster(equal: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    apart = {group[0] for group in equal.apart}
    groups = [group for group in equal.groups if group[0] not in apart]
    if not groups:
        return []
    repeated = sum(len(group) - 1 for group in groups)
    units = len({name or number for number, name in enumerate(equal.clusters)})
    sentence = (
        f"{_of(repeated, len(ids), 'repeats', 'repeat')} the input of another case{_example(groups[0], ids)}: cases "
        f"with equal inputs count as one cluster, so figures rest on {plural(units, 'cluster')} of cases "
        "(`equal_inputs: independent` counts each case)"
    )
    return [{"kind": "equal_inputs", "cases": repeated, "sentence": sentence, "key": "equal_inputs"}]


def _apart(equal: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    if not equal.apart:
        return []
    many = sum(map(len, equal.apart))
    sentence = (
        f"{_of(many, len(ids), 'has', 'have')} an input that a case of another `cluster` has"
        f"{_example(equal.apart[0], ids)}: they count as independent, so intervals are too narrow if their results "
        "agree; give them the same `cluster`"
    )
    return [{"kind": "equal_inputs_apart", "cases": many, "sentence": sentence, "key": "cluster"}]


def _contradictory(equal: EqualInputs, ids: Sequence[str]) -> list[DataFinding]:
    if not equal.contradictory:
        return []
    many = sum(map(len, equal.contradictory))
    sentence = (
        f"{_of(many, len(ids), 'has', 'have')} an input of which another case expects another value"
        f"{_example(equal.contradictory[0], ids)}: no combination can be right in all of them; correct `expected`"
    )
    return [{"kind": "contradictory_expected", "cases": many, "sentence": sentence, "key": "expected"}]


def similar_inputs(
    groups: Sequence[Sequence[int]], own: Sequence[str | None], clusters: Sequence[str | None], ids: Sequence[str]
) -> list[DataFinding]:
    """Describe the cases whose inputs are nearly equal, and which count as independent.

    Args:
        groups: The numbers of cases with nearly equal inputs.
        own: The cluster that each case names. If all of a group name one, nothing is told of it.
        clusters: The cluster of each case.
        ids: The id of each case.
    """
    many, example = 0, list[int]()
    for group in groups:
        first = {clusters[number] or number: number for number in reversed(group)}
        if len(first) > 1 and not all(own[number] for number in group):
            many += len(group)
            example = example or sorted(first.values())
    if not many:
        return []
    sentence = (
        f"{_of(many, len(ids), 'has', 'have')} nearly the input of another case{_example(example, ids)}: they count as "
        "independent, so intervals are too narrow if their results agree; give them the same `cluster`"
    )
    return [{"kind": "similar_inputs", "cases": many, "sentence": sentence, "key": "cluster"}]


def lacking_expected(metric: str, count: int, cases: int) -> DataFinding:
    """Describe the cases that have no expected value for a metric that needs one."""
    sentence = without_expected(metric, count, cases)
    return {"kind": "without_expected", "cases": count, "sentence": sentence, "key": "expected"}


def no_scale(metrics: Sequence[str]) -> list[DataFinding]:
    """Describe metrics that leave out failed cells because nothing says what a failure counts as."""
    if not metrics:
        return []
    sentence = (
        f"cells that fail are left out by {listed_names(metrics)}, so a combination that fails where it is hard looks "
        "better than it is: declare a `scale`, or what a failure counts as (`on_failure`)"
    )
    return [{"kind": "no_scale", "cases": 0, "sentence": sentence, "key": "scale"}]


def dominant_cluster(clusters: Sequence[str | None], ids: Sequence[str]) -> list[DataFinding]:
    """Describe a cluster that so many cases are in that figures rest on little else.

    Args:
        clusters: The cluster of each case.
        ids: The id of each case.
    """
    sizes = Counter(name or number for number, name in enumerate(clusters))
    ((name, largest),) = sizes.most_common(1)
    if len(sizes) < FEWEST_UNITS or largest < DOMINANT * len(ids):
        return []
    alike = len(ids) ** 2 / sum(size**2 for size in sizes.values())
    first = next(number for number, cluster in enumerate(clusters) if cluster == name)
    which = f"the input of {ids[first]!r}" if is_of_equal_inputs(clusters[first]) else f"the cluster {name!r}"
    sentence = (
        f"{_of(largest, len(ids), 'has', 'have')} {which}, so figures rest mostly on it, as if there were "
        f"{alike:.1f} clusters of equal size: add cases of others, or part its `cluster`"
    )
    return [{"kind": "dominant_cluster", "cases": largest, "sentence": sentence, "key": "cluster"}]


def _of(count: int, cases: int, verb: str, verbs: str) -> str:
    return f"{count:,} of {plural(cases, 'case')} {verb if count == 1 else verbs}"


def _example(group: Sequence[int], ids: Sequence[str]) -> str:
    return f" (such as {ids[group[0]]!r} and {ids[group[1]]!r})"
