"""Which rows could be the best: a set that holds the true best, ranks, and the figures of a row chosen as the best.

All of it rests on one set of random signs, one sign for each unit (case or cluster) and the same for all rows, since
rows share their units and what one row's luck says of another's must not be lost (Westfall & Young 1993). A row could
be the best unless another one beats it by more than the largest of that many differences does by chance: multiple
comparisons with the best (Hsu 1981), by resampling, with a spread of its own for every pair.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import NORMAL, Floats, Z
from wtb.analysis.statistics.paired import flips
from wtb.core.classes.frozen import frozen

FLIPS = 1_999
LEVEL = 0.975  # one-sided, so that of two rows one alone is left exactly where the paired test has p < 0.05
_PART = 256  # units that are held at once beside the scores
_CACHED = 1 << 16  # numbers that the cache of a core holds
_TIE = 1e-9  # spreads: that what is equal may differ by, since it was added up in another order
_SAME = 1e-9  # of the largest spread: rows that differ by less never differ


@frozen(slots=True)
class Ranking:
    """What can be said of the order of rows.

    Attributes:
        candidates: whether each row could be the best; holds the true best in at least 95% of sweeps.
        ranks: rows x 2, the first and the last place (from 1) that a row could have, each right in at least 95%.
    """

    candidates: NDArray[np.bool_]
    ranks: NDArray[np.int64]


def rank(scores: Floats, seed: int) -> Ranking:
    """Hold every row against every other.

    Args:
        scores: rows x units, complete, higher is better; at least one row.
        seed: of the random signs.
    """
    first, same, count = _distinct(scores)
    rows, units = len(first), scores.shape[1]
    totals, spread = np.zeros(rows), np.zeros((rows, rows))
    sums = _FlippedSums(rows, units, np.random.default_rng([abs(seed), 3]))
    for columns in _parts(units):
        # Differences between rows stay as they are, and lose less to rounding.
        centred = scores[first, columns] - scores[:, columns].mean(axis=0)
        totals += centred.sum(axis=1)
        spread += centred @ centred.T
        sums.add(columns, centred)
    _to_spread(spread)
    limits = _limits(sums.totals, spread) + _TIE
    beaten, ahead_of, behind = np.zeros(rows, dtype=np.bool_), np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for row in range(rows):
        ahead = (totals[row] - totals) / spread[row]
        beats = ahead > limits
        beaten |= beats
        behind += count[row] * beats
        ahead_of[row] = count[ahead > limits[row]].sum()
    ranks = np.stack([1 + behind, count.sum() - ahead_of], axis=1)
    return Ranking(candidates=~beaten[same], ranks=ranks[same])


def _distinct(scores: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return rows no two of which are alike, which of these each row is like, and how many rows each of them is.

    Pass rates of many combinations are alike where few of their nodes matter; nothing tells such rows apart.
    """
    numbers: dict[bytes, int] = {}
    same = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in scores])
    return np.unique(same, return_index=True)[1], same, np.bincount(same)


def _to_spread(gram: Floats) -> None:
    """Make a matrix of inner products that of the spreads of differences, in place: it may be large."""
    squares = np.diag(gram).copy()
    gram *= -2
    gram += squares[:, None]
    gram += squares
    np.maximum(gram, 0.0, out=gram)
    np.sqrt(gram, out=gram)
    gram[gram <= _SAME * math.sqrt(float(squares.max()) or 1.0)] = np.inf  # nothing beats what it always equals


def _limits(sums: Floats, spread: Floats) -> Floats:
    """By how much, in spreads, each row falls behind another one by chance at most, in so many of the flips.

    Signs are symmetric: that is also what it gets ahead. It is most of the work where there are many rows, so that
    each core does a part of it.
    """
    parts = np.array_split(np.arange(len(spread)), os.cpu_count() or 1)
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate(list(pool.map(partial(_limits_of, sums, spread), parts)))


def _limits_of(sums: Floats, spread: Floats, some: NDArray[np.int64]) -> Floats:
    """The limits of some rows."""
    flipped, rows = sums.shape
    step = max(1, _CACHED // rows)
    buffer, largest, inverse = np.empty((step, rows)), np.empty((len(some), flipped)), 1 / spread[some]
    for start in range(0, flipped, step):
        part = sums[start : start + step]  # which the cache holds for all of the rows
        gaps = buffer[: len(part)]
        for place, row in enumerate(some):
            np.subtract(part, part[:, [row]], out=gaps)
            np.multiply(gaps, inverse[place], out=gaps)
            gaps.max(axis=1, out=largest[place, start : start + step])
    return np.quantile(largest, LEVEL, axis=1)


class _FlippedSums:
    """The sum of each row under each set of random signs, from a part of the units at a time.

    Attributes:
        totals: flips x rows.
    """

    def __init__(self, rows: int, units: int, rng: np.random.Generator) -> None:
        self.totals = np.zeros((FLIPS, rows))
        self._signs = flips(units, FLIPS, rng, np.int8)

    def add(self, columns: slice, values: Floats) -> None:
        """Add some of the units. values: rows x these."""
        self.totals += self._signs[:, columns].astype(np.float64) @ values.T


def _parts(units: int) -> Iterator[slice]:
    return (slice(start, start + _PART) for start in range(0, units, _PART))


def chosen_level(scores: Floats, seed: int) -> float:
    """The normal quantile at which the lower end of the mean of a row, chosen as the best, covers in 97.5%.

    Of many rows the one with the highest mean was most likely lucky. The quantile is that of the luckiest of them all,
    under the correlation that they have; 1.96 for one row, or for rows that always agree.

    Args:
        scores: rows x units, complete, higher is better.
        seed: of the random signs.
    """
    means = scores.mean(axis=1)
    sizes = np.array([np.linalg.norm(row - mean) for row, mean in zip(scores, means, strict=True)])
    varies = sizes > _SAME * (float(sizes.max()) or 1.0)
    if varies.sum() < 2:
        return Z
    sums = _FlippedSums(int(varies.sum()), scores.shape[1], np.random.default_rng([abs(seed), 4]))
    for columns in _parts(scores.shape[1]):
        sums.add(columns, (scores[varies, columns] - means[varies, None]) / sizes[varies, None])
    share = float((sums.totals > np.quantile(sums.totals.max(axis=1), LEVEL)).mean())
    return max(Z, NORMAL.inv_cdf(1 - max(share, 1e-9)))


def shrunken(scores: Floats) -> Floats:
    """The means of rows, drawn towards their middle by as much as they differ by chance.

    Empirical Bayes (Efron & Morris 1973). A row that was chosen for its mean is overestimated by it; this is not. NaN
    where a row cannot be told from noise
    for want of units.

    Args:
        scores: rows x units, complete.
    """
    rows, units = scores.shape
    means = scores.mean(axis=1)
    if rows < 2 or units < 2:
        return np.full(rows, np.nan)
    middle = scores.mean(axis=0)
    noise = np.array([(row - middle).var(ddof=1) for row in scores]) / units * rows / (rows - 1)
    between = max(0.0, float(means.var(ddof=1)) - float(noise.mean()))
    share = between / (between + noise) if between > 0 else np.zeros(rows)
    return np.asarray(means.mean() + share * (means - means.mean()))
