"""Files that are sorted: the first cases of such a file are no random sample of it.

A file counts as sorted by a tag, a label or the length of inputs if cases that share it stand together more than chance
allows, and its first cases are unlike all cases.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from wtb.core.tree.stored_spec import DataFinding
from wtb.planning.cases import Case

CHANCE = 0.001  # that a file in random order is called sorted
UNLIKE = 0.2  # how much the share of a tag or label among the first cases differs from that among all
_MOST_VALUES = 1_000  # tags and labels that are counted
_FEWEST = 10  # cases of a file


@dataclass
class _Value:
    """A tag or a label: how many cases have it, in how many blocks, the last of them, and how many of the first do."""

    count: int = 0
    blocks: int = 0
    last: int = -2
    first: int = 0


class _Sorted(NamedTuple):
    """What a file is sorted by, and how its first cases differ."""

    by: str
    difference: str


class Ordering:
    """The order of the cases of a sweep of which the first ones run."""

    def __init__(self, limit: int, *, names_labels: bool = True) -> None:
        """Set up for a limit. names_labels: whether expected values may be shown."""
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
        if name not in values and len(values) == _MOST_VALUES:
            return
        value = values.setdefault(name, _Value())
        value.count += 1
        value.blocks += value.last != number - 1
        value.last = number
        value.first += number < self._limit

    def findings(self) -> Iterator[DataFinding]:
        """Yield at most one: that the first cases are no random sample."""
        cases = len(self._lengths)
        if cases <= self._limit or cases < _FEWEST or self._limit == 1:  # of one case nobody expects figures
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
        tested = {name: value for name, value in values.items() if 1 < value.count < cases}
        unlike = []
        for name, value in tested.items():
            of_first, of_all = value.first / self._limit, value.count / cases
            if abs(of_first - of_all) < UNLIKE or _together(value, cases) > CHANCE / len(tested):
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
        chance = math.erfc(abs(correlation) * math.sqrt((lengths.size - 1) / 2))
        if chance > CHANCE or 0.25 <= middle <= 0.75:
            return None
        of_first, of_all = float(np.median(lengths[: self._limit])), float(np.median(lengths))
        return _Sorted("length", f"a median of {of_first:,.0f} characters in the first, {of_all:,.0f} in all")


def _together(value: _Value, cases: int) -> float:
    """Return the chance that in random order the cases with a value stand in so few blocks, or fewer.

    The number of blocks is hypergeometric (Wald & Wolfowitz 1940).
    """
    if value.blocks * cases >= value.count * (cases - value.count + 1):  # no fewer than are expected
        return 1.0
    ways = math.lgamma(cases + 1) - math.lgamma(value.count + 1) - math.lgamma(cases - value.count + 1)
    other_count = cases - value.count + 1
    chance = 0.0
    for blocks in range(value.blocks, 0, -1):
        if blocks > other_count:
            continue
        term = math.exp(_choose(value.count - 1, blocks - 1) + _choose(other_count, blocks) - ways)
        chance += term
        if term < chance * 1e-12:
            break
    return min(1.0, chance)


def _choose(of: int, some: int) -> float:
    """The logarithm of the number of ways to choose some of a number."""
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def _labels(expected: Any) -> Iterator[str]:
    """Yield the labels in an expected value: itself, or the fields of a mapping, that are short texts or numbers."""
    if isinstance(expected, Mapping):
        for field, value in expected.items():
            for label in _labels(None if isinstance(value, Mapping) else value):
                yield f"{field}={label}"
    elif isinstance(expected, bool | int) or (isinstance(expected, str) and len(expected) <= 100):
        yield str(expected)


def _text_length(value: Any) -> int:
    """How long the texts in a value are together."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_text_length, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_text_length, value))
    return 0
