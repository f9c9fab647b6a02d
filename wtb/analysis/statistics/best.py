"""Best rows: a set that contains the true best, ranks, and the next step if no row is clearly the best.

Everything uses one set of random signs, one sign for each unit (case or cluster) and the same for all rows, because
rows share their units and their correlation must not be lost (Westfall & Young 1993). A row could be the best unless
another one beats it by more than the largest of that many differences does by chance: multiple comparisons with the
best (Hsu 1981), by resampling, with a separate spread for every pair.
"""

from __future__ import annotations

import math
import os
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import (
    NORMAL,
    Floats,
    Units,
    Z,
    by_unit,
    differences_by_unit,
    intervals,
    rate_difference,
    tail_quantile,
)
from wtb.analysis.statistics.paired import Tested, flips
from wtb.analysis.statistics.power import pairs_needed
from wtb.core.frozen import frozen

FLIPS = 1_999
LEVEL = 0.975  # one-sided, so that of two rows one alone is left exactly where the paired test has p < 0.05
_PART = 256  # units that are held at once beside the scores
_CACHED = 1 << 16  # numbers that the cache of a core holds
_TIE = 1e-9  # spreads: that what is equal may differ by, since it was added up in another order
_SAME = 1e-9  # of the largest spread: rows that differ by less never differ


@frozen(slots=True)
class Ranking:
    """The possible order of rows.

    Attributes:
        candidates: Whether each row could be the best; contains the true best in at least 95% of sweeps.
        ranks: Rows x 2, the first and the last rank (from 1) that a row could have, each right in at least 95%.
    """

    candidates: NDArray[np.bool_]
    ranks: NDArray[np.int64]


def rank(scores: Floats, seed: int) -> Ranking:
    """Compare every row with every other.

    Args:
        scores: Rows x units, complete, higher is better; at least one row.
        seed: The seed of the random signs.
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
    """Return distinct rows, the distinct row that equals each row, and how many rows equal each of them.

    Pass rates of many combinations are equal if few of their nodes matter; nothing distinguishes such rows.
    """
    numbers: dict[bytes, int] = {}
    same = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in scores])
    return np.unique(same, return_index=True)[1], same, np.bincount(same)


def _to_spread(gram: Floats) -> None:
    """Convert a matrix of inner products to the spreads of differences, in place because it may be large."""
    squares = np.diag(gram).copy()
    gram *= -2
    gram += squares[:, None]
    gram += squares
    np.maximum(gram, 0.0, out=gram)
    np.sqrt(gram, out=gram)
    gram[gram <= _SAME * math.sqrt(float(squares.max()) or 1.0)] = np.inf  # nothing beats what it always equals


def _limits(sums: Floats, spread: Floats) -> Floats:
    """Return by how many spreads each row falls behind any other by chance at most, at the given level.

    Signs are symmetric, so this is also by how much it gets ahead. With many rows it is most of the work, so each core
    computes a part.
    """
    # Threads suffice: numpy releases the interpreter's lock in these loops, and nothing is copied.
    parts = np.array_split(np.arange(len(spread)), os.cpu_count() or 1)
    with ThreadPoolExecutor(len(parts)) as pool:
        return np.concatenate(list(pool.map(partial(_limits_of, sums, spread), parts)))


def _limits_of(sums: Floats, spread: Floats, some: NDArray[np.int64]) -> Floats:
    """Return the limits of some rows."""
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
    """Sums of each row under each set of random signs, accumulated over parts of the units.

    Attributes:
        totals: Flips x rows.
    """

    def __init__(self, rows: int, units: int, rng: np.random.Generator) -> None:
        self.totals = np.zeros((FLIPS, rows))
        self._signs = flips(units, FLIPS, rng, np.int8)

    def add(self, columns: slice, values: Floats) -> None:
        """Add some of the units. `values` is rows x these units."""
        self.totals += self._signs[:, columns].astype(np.float64) @ values.T


def _parts(units: int) -> Iterator[slice]:
    return (slice(start, start + _PART) for start in range(0, units, _PART))


def chosen_level(scores: Floats, seed: int) -> float:
    """Return the normal quantile at which the lower bound of a row, chosen as the best, covers in 97.5%.

    Of many rows, the one with the highest mean was most likely lucky. The quantile is that of the luckiest of all rows,
    given their correlation; 1.96 for one row, or for rows that always agree.

    Args:
        scores: Rows x units, complete, higher is better.
        seed: The seed of the random signs.
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
    """Return the means of rows, shrunken towards their centre by as much as they differ by chance.

    Empirical Bayes (Efron & Morris 1973). The mean of a row that was chosen for it is too high; this estimate is not.
    NaN if there are too few units to separate a row from noise.

    Args:
        scores: Rows x units, complete.
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


def front(costs: Floats) -> list[int]:
    """Return the rows of `costs` (rows x objectives, less is better) that no other row dominates, in their order.

    A row dominates another if it is nowhere worse and somewhere better. Rows with a NaN are left out.
    """
    numbers = np.flatnonzero(np.isfinite(costs).all(axis=1))
    candidates = costs[numbers]
    return [
        int(number)
        for number, row in zip(numbers, candidates, strict=True)
        if not ((candidates <= row).all(axis=1) & (candidates < row).any(axis=1)).any()
    ]


_FAR = 50  # times the cases that there are: more than anybody will run


@frozen(slots=True)
class NextStep:
    """The next step towards the best of the candidates.

    Attributes:
        cases: The approximate number of cases in all that settles it with 80% power if every lead of the best is as
            large as observed; None if a lead is 0, or if that is beyond 50 times the cases.
        cases_if_half: The same if the leads are half as large.
        differ_at_most: The largest possible difference of two candidates, with 95% confidence in all of them; None if
            unknown.
    """

    cases: int | None = None
    cases_if_half: int | None = None
    differ_at_most: float | None = None


@frozen
class Leads:
    """Leads of the best over the other candidates.

    Attributes:
        table: Candidates x cases, complete.
        tested: The test of each.
        rates: Which of them are of scores that are 0 or 1.
        units: The cluster of each case; None if each is its own.
        are_means: True if they are compared by the mean of their scores.
        width: The largest possible difference of two scores.
    """

    table: Floats
    tested: Sequence[Tested]
    rates: NDArray[np.bool_]
    units: Units
    are_means: bool
    width: float = math.inf


def next_step(leads: Leads, level: Callable[[int], float]) -> NextStep:
    """Plan the next step.

    Args:
        leads: The leads of a sweep that settled nothing.
        level: Returns the level of each test in a sweep of so many cases, which is a further look at these.
    """
    effects = np.array([test.delta or 0.0 for test in leads.tested])
    spreads = np.array([math.nan if test.spread is None else test.spread for test in leads.tested])
    cases = half = None
    if (effects > 0).all() and np.isfinite(spreads).all():
        cases, half = (_cases(leads, effects * part, spreads, level) for part in (1.0, 0.5))
    return NextStep(cases, half, _differ_at_most(leads))


def _cases(leads: Leads, effects: Floats, spreads: Floats, level: Callable[[int], float]) -> int | None:
    each, cases = differences_by_unit(leads.table, leads.units), leads.table.shape[1]
    correlation = np.atleast_2d(np.corrcoef(each))
    rates = leads.rates if leads.units is None else None

    def quantile(number: int) -> float:
        return tail_quantile(level(number) / 2)

    # The more cases are new, the less a look at the old ones costs: between its ends the root grows with the quantile.
    ends = np.array([quantile(_FAR * cases), quantile(cases)])
    roots = [pairs_needed(effects, spreads, z, correlation, rates=rates) ** 0.5 for z in ends.tolist()]

    def lacks(number: int) -> bool:
        return bool(number * each.shape[1] / cases < np.interp(quantile(number), ends, roots) ** 2)

    if lacks(_FAR * cases):
        return None
    return bisect(range(_FAR * cases), x=False, lo=cases + 1, key=lambda number: not lacks(number))


def _differ_at_most(leads: Leads) -> float | None:
    """Bound the difference of any two candidates by simultaneous intervals of all leads (Bonferroni)."""
    count = len(leads.table)
    if leads.are_means:
        z = tail_quantile(0.025 / count)
        ends = intervals(by_unit(leads.table, leads.units), z)
        if leads.units is None:
            ends[leads.rates] = rate_difference(leads.table[leads.rates], z)
        ends[(leads.table == 0).all(axis=1) & np.isnan(ends[:, 0])] = 0.0
    else:  # their intervals have one level
        ends = np.array([leads.tested[0].ci or (math.nan, math.nan)] if count == 1 else [(math.nan, math.nan)])
    if np.isnan(ends).any():
        return None
    lows, highs = np.minimum(ends[:, 0], 0.0), np.maximum(ends[:, 1], 0.0)
    of_others = [highs[place] - np.delete(lows, place).min() for place in range(count) if count > 1]
    widest = float(max(highs.max(), -lows.min(), *of_others))
    return min(widest, leads.width, 1.0 if leads.rates.all() else math.inf)
