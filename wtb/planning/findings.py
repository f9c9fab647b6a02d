"""Findings on the cases of a sweep, as sentences: the problem, its effect on the figures, and the remedy."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from wtb.core.scoring.measure import without_expected
from wtb.core.texts import listed_names, plural
from wtb.core.tree.looks import is_of_equal_inputs
from wtb.core.tree.stored_spec import DataFinding
from wtb.planning.cases import Case
from wtb.planning.equal_inputs import EqualInputs

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
        own: The cluster that each case names. A group in which all name one is not reported.
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
    """Describe metrics that leave out failed cells because no setting gives the score of a failure."""
    if not metrics:
        return []
    sentence = (
        f"cells that fail are left out by {listed_names(metrics)}, so a combination that fails where it is hard looks "
        "better than it is: declare a `scale`, or what a failure counts as (`on_failure`)"
    )
    return [{"kind": "no_scale", "cases": 0, "sentence": sentence, "key": "scale"}]


def dominant_cluster(clusters: Sequence[str | None], ids: Sequence[str]) -> list[DataFinding]:
    """Describe a cluster of so many cases that figures depend on little else.

    Args:
        clusters: The cluster of each case.
        ids: The id of each case.
    """
    sizes = Counter(name or number for number, name in enumerate(clusters))
    ((name, largest),) = sizes.most_common(1)
    if len(sizes) < FEWEST_UNITS or largest < DOMINANT * len(ids):
        return []
    # Kish's effective number of clusters: as many equal ones would have the same variance.
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


CHANCE = 0.001  # that a file in random order is called sorted
UNLIKE = 0.2  # how much the share of a tag or label among the first cases differs from that among all
_MOST_VALUES = 1_000  # tags and labels that are counted
_FEWEST = 10  # cases of a file


@dataclass
class _Value:
    """A tag or label: the number of its cases, of their blocks, the last case, and the number among the first ones."""

    count: int = 0
    blocks: int = 0
    last: int = -2
    first: int = 0


class _Sorted(NamedTuple):
    """The order of a file, and the difference of its first cases."""

    by: str
    difference: str


class Ordering:
    """Check of the order of cases, for a sweep of which only the first ones run."""

    def __init__(self, limit: int, *, names_labels: bool = True) -> None:
        """Create a check for a limit. Expected values appear in sentences only if `names_labels`."""
        self._limit, self._names_labels = limit, names_labels
        self._tags: dict[str, _Value] = {}
        self._labels: dict[str, _Value] = {}
        self._lengths = array("Q")

    def add(self, case: Case) -> None:
        """Add the next case."""
        for tag in set(case.tags):
            self._count(self._tags, tag)
        for label in _labels(case.expected):
            self._count(self._labels, label)
        self._lengths.append(_text_length(case.input))

    def _count(self, values: dict[str, _Value], name: str) -> None:
        number = len(self._lengths)
        # Ids or free text among the tags would fill memory; a value that is new after so many sorts nothing.
        if name not in values and len(values) == _MOST_VALUES:
            return
        tally = values.setdefault(name, _Value())
        tally.count += 1
        tally.blocks += tally.last != number - 1
        tally.last = number
        tally.first += number < self._limit

    def findings(self) -> Iterator[DataFinding]:
        """Yield a finding if the first cases are not a random sample."""
        cases = len(self._lengths)
        if cases <= self._limit or cases < _FEWEST or self._limit == 1:  # one case has no figures
            return
        sort_order = self._by_value("tag", self._tags) or self._by_value("label", self._labels) or self._by_length()
        if sort_order is None:
            return
        sentence = (
            f"the first {self._limit:,} of {cases:,} cases are no random sample, because the file is sorted by "
            f"{sort_order.by} ({sort_order.difference}), so figures are not those of all cases: `sample` draws "
            "cases at random"
        )
        yield {"kind": "sorted_file", "cases": self._limit, "sentence": sentence, "key": "sample"}

    def _by_value(self, kind: str, values: Mapping[str, _Value]) -> _Sorted | None:
        cases = len(self._lengths)
        tested = {name: tally for name, tally in values.items() if 1 < tally.count < cases}
        unlike = []
        for name, tally in tested.items():
            of_first, of_all = tally.first / self._limit, tally.count / cases
            # The level is shared by all tested values, because any of them could look sorted by chance.
            if abs(of_first - of_all) < UNLIKE or _together(tally, cases) > CHANCE / len(tested):
                continue
            unlike.append((round(abs(of_first - of_all), 9), of_first, name, of_all))
        if not unlike:
            return None
        _, of_first, name, of_all = max(unlike)
        label = f"{name!r}" if kind == "tag" or self._names_labels else "one of them"
        return _Sorted(kind, f"{label}: {of_first:.0%} of the first, {of_all:.0%} of all")

    def _by_length(self) -> _Sorted | None:
        import numpy as np

        lengths = np.frombuffer(self._lengths, dtype=self._lengths.typecode).astype(float)
        _, places, counts = np.unique(lengths, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # of ties their mean
        if counts.size == 1:
            return None
        correlation = float(np.corrcoef(np.arange(lengths.size), ranks)[0, 1])
        middle = float(ranks[: self._limit].mean()) / lengths.size
        # Without an order, Spearman's correlation is nearly normal with the variance 1 / (n - 1).
        chance = math.erfc(abs(correlation) * math.sqrt((lengths.size - 1) / 2))
        if chance > CHANCE or 0.25 <= middle <= 0.75:
            return None
        of_first, of_all = float(np.median(lengths[: self._limit])), float(np.median(lengths))
        return _Sorted("length", f"a median of {of_first:,.0f} characters in the first, {of_all:,.0f} in all")


def _together(tally: _Value, cases: int) -> float:
    """Return the chance that in random order the cases with a value stand in so few blocks, or fewer.

    The number of blocks is hypergeometric (Wald & Wolfowitz 1940).
    """
    if tally.blocks * cases >= tally.count * (cases - tally.count + 1):  # no fewer than are expected
        return 1.0
    ways = math.lgamma(cases + 1) - math.lgamma(tally.count + 1) - math.lgamma(cases - tally.count + 1)
    other_count = cases - tally.count + 1
    chance = 0.0
    for blocks in range(min(tally.blocks, other_count), 0, -1):
        term = math.exp(_choose(tally.count - 1, blocks - 1) + _choose(other_count, blocks) - ways)
        chance += term
        if term < chance * 1e-12:
            break
    return min(1.0, chance)


def _choose(of: int, some: int) -> float:
    """Return the logarithm of the number of ways to choose some of a number."""
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def _labels(expected: Any) -> Iterator[str]:
    """Yield the labels in an expected value: itself, or the fields of a mapping, that are short texts or numbers."""
    if isinstance(expected, Mapping):
        for field, part in expected.items():
            for label in _labels(None if isinstance(part, Mapping) else part):
                yield f"{field}={label}"
    elif isinstance(expected, bool | int) or (isinstance(expected, str) and len(expected) <= 100):
        yield str(expected)


def _text_length(content: Any) -> int:
    """Return the total length of the texts in a value."""
    if isinstance(content, str | bytes):
        return len(content)
    if isinstance(content, Mapping):
        return sum(map(_text_length, content.values()))
    if isinstance(content, list | tuple):
        return sum(map(_text_length, content))
    return 0
