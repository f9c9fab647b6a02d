"""The typical difference of pairs, which a few far ones hardly move: for durations and whatever else has outliers.

Its figure is Hodges and Lehmann's (1963): the median of the averages of any two differences. Its test is Wilcoxon's
(1945): the sign flips of `paired`, of the ranks of the differences in place of their sizes. Its interval is what that
test does not refuse.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats, Z, is_constant

EXACT_TO = 200  # pairs of which the distribution of the test is counted; the normal one is as near beyond
_NEAR = 1e-13  # of the largest difference; averages that are nearer to each other are the same


def signed_ranks(differences: Floats) -> Floats:
    """Each difference's rank by size among those of its row that are not 0, with its sign; equal sizes share theirs."""
    found = np.where(np.isfinite(differences), 0.0, np.nan)
    for row, ranks in zip(differences, found, strict=True):
        differ = np.flatnonzero(np.nan_to_num(row))
        sizes, place, counts = np.unique(np.abs(row[differ]), return_inverse=True, return_counts=True)
        if sizes.size:
            ranks[differ] = (np.cumsum(counts) - (counts - 1) / 2)[place] * np.sign(row[differ])
    return found


def shifts(differences: Floats) -> tuple[Floats, Floats]:
    """The typical difference of each row, and a 95% interval for it.

    NaN without pairs. No interval for fewer than six pairs, which cannot give one, and without variation.
    """
    middle, ends = np.full(len(differences), np.nan), np.full((len(differences), 2), np.nan)
    for i, row in enumerate(differences):
        found = np.sort(row[np.isfinite(row)])
        if not found.size:
            continue
        last = found.size * (found.size + 1) // 2 - 1  # of the averages, from 0
        middle[i] = (_average(found, last // 2) + _average(found, (last + 1) // 2)) / 2
        outside = _outside(found.size)
        if outside and not is_constant(found):
            ends[i] = _average(found, outside - 1), _average(found, last - outside + 1)
    return middle, ends


def spreads_of(ends: Floats, counts: Floats) -> Floats:
    """The standard deviation that differences without outliers would have, for intervals as wide as these."""
    found = (ends[:, 1] - ends[:, 0]) * np.sqrt(counts) / (2 * Z)
    return np.asarray(np.where(found > 0, found, np.nan))


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


def _average(values: Floats, place: int) -> float:
    """Of the averages of any two of sorted differences, and of each with itself, the one at this place by size.

    There may be too many to hold: they are counted on both sides of a guess until few are left (Johnson & Mizoguchi
    1978).
    """
    scale = float(np.abs(values).max())
    if scale == 0:
        return 0.0
    low, high = float(values[0]) - scale, float(values[-1])
    below, upto = _counted(values, low), _counted(values, high)
    while (upto - below).sum() > values.size and high - low > _NEAR * scale:
        guess = (low + high) / 2
        counted = _counted(values, guess)
        if (counted - np.arange(values.size)).sum() > place:
            high, upto = guess, counted
        else:
            low, below = guess, counted
    if high - low <= _NEAR * scale:
        partners = below[below < values.size]
        return float(((values[below < values.size] + values[partners]) / 2).min())
    left = np.concatenate([(values[i] + values[below[i] : upto[i]]) / 2 for i in np.flatnonzero(upto > below).tolist()])
    return float(np.sort(left)[place - int((below - np.arange(values.size)).sum())])


def _counted(found: Floats, most: float) -> NDArray[np.int64]:
    """For each difference the place up to which, from its own, averages with it are no more than `most`."""
    return np.maximum(np.searchsorted(found, 2 * most - found, side="right"), np.arange(found.size))
