"""The typical difference of pairs, which a few far ones hardly move: for durations and whatever else has outliers.

Its figure is Hodges and Lehmann's (1963): the median of the averages of any two differences. Its test is Wilcoxon's
(1945): the sign flips of `paired`, of the ranks of the differences in place of their sizes. Its interval is what that
test does not refuse.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats, Z, is_constant

EXACT_TO = 200  # pairs of which the distribution of the test is counted; the normal one is as near beyond
_NEAR = 1e-13  # of the largest difference; averages that are nearer to each other are the same
_AVERAGES_AT_ONCE = 4  # averages that are held at once, for each difference


def signed_ranks(differences: Floats) -> Floats:
    """Each difference's rank by size among those of its row that are not 0, with its sign; equal sizes share theirs."""
    signed = np.where(np.isfinite(differences), 0.0, np.nan)
    for row, ranks in zip(differences, signed, strict=True):
        differ = np.flatnonzero(np.nan_to_num(row))
        sizes, place, counts = np.unique(np.abs(row[differ]), return_inverse=True, return_counts=True)
        if sizes.size:
            ranks[differ] = (np.cumsum(counts) - (counts - 1) / 2)[place] * np.sign(row[differ])
    return signed


def shifts(differences: Floats) -> tuple[Floats, Floats]:
    """The typical difference of each row, and a 95% interval for it.

    NaN without pairs. No interval for fewer than six pairs, which cannot give one, and without variation.
    """
    middle, ends = np.full(len(differences), np.nan), np.full((len(differences), 2), np.nan)
    for i, row in enumerate(differences):
        values = np.sort(row[np.isfinite(row)])
        if not values.size:
            continue
        averages = _Averages(values)
        middle[i] = (averages.at((averages.count - 1) // 2) + averages.at(averages.count // 2)) / 2
        outside = _outside(values.size)
        if outside and not is_constant(values):
            ends[i] = averages.at(outside - 1), averages.at(averages.count - outside)
    return middle, ends


def spreads_of(ends: Floats, counts: Floats) -> Floats:
    """The standard deviation that differences without outliers would have, for intervals as wide as these."""
    spreads = (ends[:, 1] - ends[:, 0]) * np.sqrt(counts) / (2 * Z)
    return np.asarray(np.where(spreads > 0, spreads, np.nan))


@lru_cache(maxsize=1024)
def _outside(pairs: int) -> int:
    """How many averages, from either end, are outside of the interval and on its ends: the test's quantile of 2.5%."""
    if pairs > EXACT_TO:
        spread = math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
        return math.ceil(pairs * (pairs + 1) / 4 - Z * spread - 0.5)
    ways = np.ones(1)
    for rank in range(1, pairs + 1):  # how many flips give each sum of ranks
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    return int(np.searchsorted(np.cumsum(ways) / 2.0**pairs, 0.025))


class _Averages:
    """The averages of any two of sorted differences, and of each with itself, by size.

    There may be too many to hold: they are counted on both sides of a guess until few remain (Johnson & Mizoguchi
    1978). Guesses interpolate between counts, because the averages of many differences lie evenly between near bounds.
    Counts are kept: the next place begins where the last one ended.
    """

    def __init__(self, values: Floats) -> None:
        self._values, self._own = values, np.arange(values.size)
        self._scale = float(np.abs(values).max())
        self.count = values.size * (values.size + 1) // 2
        none = _Count(float(values[0]) - self._scale, self._own, 0)
        every = _Count(float(values[-1]), np.full_like(self._own, values.size), self.count)
        self._counts = [none, every]

    def at(self, place: int) -> float:
        """The average at a place, from 0."""
        if self._scale == 0:
            return 0.0
        lower, upper = self._around(place)
        if self._is_same(lower, upper):
            inside = lower.partners < self._values.size
            return float(((self._values[inside] + self._values[lower.partners[inside]]) / 2).min())
        counts = upper.partners - lower.partners
        first = np.repeat(self._own, counts)
        second = np.arange(first.size) - np.repeat(np.cumsum(counts) - counts - lower.partners, counts)
        remaining = (self._values[first] + self._values[second]) / 2
        return float(np.partition(remaining, place - lower.total)[place - lower.total])

    def _around(self, place: int) -> tuple[_Count, _Count]:
        """The counts of two bounds with the place between them and few others."""
        right = bisect_right(self._counts, place, key=lambda counted: counted.total)
        lower, upper = self._counts[right - 1], self._counts[right]
        for turn in itertools.count():
            between = upper.total - lower.total
            if between <= _AVERAGES_AT_ONCE * self._values.size or self._is_same(lower, upper):
                break
            share = 0.5
            if turn % 3 < 2:  # in turn a little below the place, a little above it, and, whatever their shape, halfway
                share = (place - lower.total + (turn % 3 - 0.5) * _AVERAGES_AT_ONCE * self._values.size / 2) / between
            guess = lower.bound + (upper.bound - lower.bound) * min(max(share, 0.001), 0.999)
            counted = self._counted(guess)
            lower, upper = (lower, counted) if counted.total > place else (counted, upper)
            self._counts.insert(bisect_right(self._counts, guess, key=lambda counted: counted.bound), counted)
        return lower, upper

    def _is_same(self, lower: _Count, upper: _Count) -> bool:
        return upper.bound - lower.bound <= _NEAR * self._scale

    def _counted(self, bound: float) -> _Count:
        partners = np.maximum(np.searchsorted(self._values, 2 * bound - self._values, side="right"), self._own)
        return _Count(bound, partners, int(partners.sum()) - self._values.size * (self._values.size - 1) // 2)


class _Count(NamedTuple):
    """How many averages are no more than `bound`; partners: of each difference, up to which later one."""

    bound: float
    partners: NDArray[np.int64]
    total: int
