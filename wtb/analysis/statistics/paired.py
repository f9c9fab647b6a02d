"""Tests of paired differences: whether their mean is beyond chance. The case is the pair.

The sign-flip permutation test (Fisher 1935) assumes that without a true difference each case's sign could have been the
other one. If all nonzero differences are of equal size, as for pass and fail, it is McNemar's exact test (1947). Skewed
differences can have the mean 0 without that symmetry, so for those the test of Hall's transformed t (1992), which is of
the mean, has to agree: the larger p counts.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.class_intervals import FigureDifferences
from wtb.analysis.statistics.intervals import (
    FEWEST,
    NORMAL,
    RESAMPLES,
    ROUNDING,
    Floats,
    Interval,
    Units,
    Z,
    by_unit,
    chunks,
    differences_by_unit,
    intervals,
    is_constant,
    rate_difference,
    row_blocks,
    skewness,
    transformed_t,
)
from wtb.analysis.statistics.power import spreads
from wtb.core.frozen import frozen

EXACT_TO = 200  # pairs of which the distribution of the test is counted; the normal one is as near beyond
_NEAR = 1e-13  # of the largest difference; averages that are nearer to each other are the same
_AVERAGES_AT_ONCE = 4  # averages that are held at once, for each difference


def signed_ranks(differences: Floats) -> Floats:
    """Return each difference's signed rank by size among the nonzero ones of its row; equal sizes share their rank."""
    signed = np.where(np.isfinite(differences), 0.0, np.nan)
    for row, ranks in zip(differences, signed, strict=True):
        differ = np.flatnonzero(np.nan_to_num(row))
        sizes, place, counts = np.unique(np.abs(row[differ]), return_inverse=True, return_counts=True)
        if sizes.size:
            ranks[differ] = (np.cumsum(counts) - (counts - 1) / 2)[place] * np.sign(row[differ])
    return signed


def shifts(differences: Floats) -> tuple[Floats, Floats]:
    """Return the typical difference of each row, and a 95% interval for it.

    NaN without pairs. There is no interval for fewer than six pairs, which cannot give one, and without variation.
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
    """Return the standard deviation of differences without outliers whose intervals would be as wide as these."""
    spreads = (ends[:, 1] - ends[:, 0]) * np.sqrt(counts) / (2 * Z)
    return np.asarray(np.where(spreads > 0, spreads, np.nan))


@lru_cache(maxsize=1024)
def _outside(pairs: int) -> int:
    """Return how many averages, from either end, are outside of the interval or on its ends: the 2.5% quantile of the
    test.
    """
    if pairs > EXACT_TO:
        spread = math.sqrt(pairs * (pairs + 1) * (2 * pairs + 1) / 24)
        return math.ceil(pairs * (pairs + 1) / 4 - Z * spread - 0.5)
    ways = np.ones(1)
    for rank in range(1, pairs + 1):  # how many flips give each sum of ranks
        ways = np.concatenate([ways, np.zeros(rank)]) + np.concatenate([np.zeros(rank), ways])
    return int(np.searchsorted(np.cumsum(ways) / 2.0**pairs, 0.025))


class _Averages:
    """The averages of any two sorted differences, and of each with itself, by size.

    There may be too many to store: they are counted on both sides of a guess until few remain (Johnson & Mizoguchi
    1978). Guesses interpolate between counts, because the averages of many differences lie evenly between near bounds.
    Counts are
    stored: the next search begins where the last one ended.
    """

    def __init__(self, values: Floats) -> None:
        self._values, self._own = values, np.arange(values.size)
        self._scale = float(np.abs(values).max())
        self.count = values.size * (values.size + 1) // 2
        none = _Count(float(values[0]) - self._scale, self._own, 0)
        every = _Count(float(values[-1]), np.full_like(self._own, values.size), self.count)
        self._counts = [none, every]

    def at(self, place: int) -> float:
        """Return the average at a position, from 0."""
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
        """Return the counts of two bounds with the position between them and few others."""
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
    """The number of averages up to a bound.

    Attributes:
        bound: The bound.
        partners: For each difference, the number of differences up to the last one whose average with it is below the
            bound.
        total: The count.
    """

    bound: float
    partners: NDArray[np.int64]
    total: int


Compare = Literal["mean", "median"]
Signs = NDArray[np.number[Any]]
EXACT_PAIRS = 13  # 2**13 <= RESAMPLES: every flip of so few pairs can be enumerated
LIMIT_FROM, LIMIT_ALWAYS = 500, 10_000  # pairs that differ; between them it depends on how even they are
LIMIT_EVEN = 100  # as many equal differences: from there on the limit is nearer than sampling
SMALLEST_P = 1e-300
ALPHA = 0.05  # of intervals, and of the tests that agree with them
_TINY = 1e-60  # what is smaller is divided by a power of two, which is exact
_SKEWNESS_SEEN = 1.5 * math.sqrt(6)  # 1.5 standard errors: taking out less would follow noise, and cost power
_ROWS = 512  # rows flipped at once


@frozen(slots=True)
class Tested:
    """One row of paired differences; None for figures that its pairs do not define.

    Attributes:
        n: The number of pairs.
        delta: Their mean, or their median if typical differences are compared.
        ci: The interval of `delta`.
        p: The two-sided p-value.
        effect: `delta` divided by `spread`.
        spread: The standard deviation of the differences.
        units: The number of pairs, or of their clusters.
    """

    n: int
    delta: float | None
    ci: Interval | None
    p: float | None
    effect: float | None
    spread: float | None
    units: int = 0

    def times(self, unit: float) -> Tested:
        """Return the test of differences that are `unit` times as large."""
        delta, spread = times(self.delta, unit), times(self.spread, unit)
        return replace(self, delta=delta, ci=interval_times(self.ci, unit), spread=spread)


def paired_tests(
    differences: Floats,
    *,
    seed: int = 0,
    rates: NDArray[np.bool_] | bool = False,
    compare: Compare = "mean",
    units: Units = None,
    figures: FigureDifferences | None = None,
) -> list[Tested]:
    """Test every row of differences.

    Args:
        differences: Rows x cases, NaN where one is missing.
        seed: The seed of the random signs.
        rates: Which rows are of scores that are 0 or 1 on both sides.
        compare: Compare by the mean of the differences, or by their median (see `shifts`).
        units: The cluster of each case; None if each is its own.
        figures: For figures over all cells of a row, the source of p and intervals; else both are of the differences.

    Returns:
        One test per row. n counts cases; p is None for fewer than two units, or six clusters.
    """
    if figures is None and (unit := unit_of(differences)) != 1.0:
        tested = paired_tests(differences / unit, seed=seed, rates=rates, compare=compare, units=units)
        return [test.times(unit) for test in tested]
    differences = cleaned(differences)
    cases = np.isfinite(differences).sum(axis=1)
    each = differences_by_unit(differences, units)
    counts = np.isfinite(each).sum(axis=1)
    if compare == "median":
        centres, ci = shifts(each)
        spread = spreads_of(ci, counts)
        is_rate = np.zeros(len(each), dtype=np.bool_)
    else:
        linear = by_unit(differences, units)
        centres, spread, ci = means(differences), spreads(linear), intervals(linear)
        is_rate = np.broadcast_to(np.asarray(rates) & (units is None), len(differences))
        ci[is_rate] = rate_difference(differences[is_rate])
    swaps = each
    if figures is not None:
        ci = np.where(counts[:, None] >= 2, figures.ends, np.nan)
        swaps = differences_by_unit(_swapped(figures.swaps, differences), units)
    p = chance(swaps, seed, compare)
    if units is not None:
        p[counts < FEWEST] = np.nan
    ci, p = _agreeing(centres, ci, p)
    with np.errstate(invalid="ignore"):
        columns = (centres, ci, p, centres / spread, spread)
    return list(map(Tested, cases.tolist(), *map(defined, columns), counts.tolist()))


def _agreeing(middle: Floats, ci: Floats, p: Floats) -> tuple[Floats, Floats]:
    """Return intervals and p-values that agree: an interval excludes 0 exactly if p < 5%.

    Test and interval are computed in two valid ways. If they disagree the more careful one counts.
    """
    p = p.copy()
    with np.errstate(invalid="ignore", divide="ignore"):
        is_apart = (ci[:, 0] > 0) | (ci[:, 1] < 0)
        half = np.where(middle > 0, middle - ci[:, 0], ci[:, 1] - middle)
        ends = np.array([2 * NORMAL.cdf(-Z * size) if np.isfinite(size) else np.nan for size in np.abs(middle) / half])
        is_late = (p < ALPHA) & np.isfinite(ends) & ~is_apart
        p[is_late] = np.clip(ends[is_late], ALPHA, 1.0)
    with_zero = np.stack([np.minimum(ci[:, 0], 0.0), np.maximum(ci[:, 1], 0.0)], axis=1)
    return np.where(((p >= ALPHA) & is_apart)[:, None], with_zero, ci), p


def _swapped(swaps: Floats, differences: Floats) -> Floats:
    """Return the swapped values of pairs that have a difference, without rounding errors."""
    largest = np.nanmax(np.abs(swaps), axis=1, initial=0.0, keepdims=True)
    swaps = np.where(np.abs(swaps) > ROUNDING * largest, swaps, np.where(np.isnan(swaps), np.nan, 0.0))
    return cleaned(np.where(np.isfinite(differences), swaps, np.nan))


def chance(differences: Floats, seed: int, compare: Compare = "mean") -> Floats:
    """Return the two-sided p of the paired test for each row (rows x units); NaN for fewer than two pairs."""
    return sign_flip(signed_ranks(differences), seed) if compare == "median" else mean_test(differences, seed)


def mean_test(differences: Floats, seed: int) -> Floats:
    """Return two-sided p-values by row: the larger of `sign_flip` and, for skewed rows, of a t without the skewness.

    Args:
        differences: Rows x units, NaN where one is missing.
        seed: The seed of the random signs.

    Returns:
        One p per row; NaN for fewer than two pairs.
    """
    p = sign_flip(differences, seed)
    skewed = skewness(differences)
    for i in np.flatnonzero(np.isfinite(p)).tolist():
        row = differences[i][np.isfinite(differences[i])]
        sizes = np.abs(row[row != 0])
        if is_constant(row) or np.ptp(sizes) <= ROUNDING * sizes.max():
            continue  # exactly McNemar's, which is of the mean
        if skewed[i] > _SKEWNESS_SEEN / row.size:
            p[i] = max(p[i], _p_of_t(transformed_t(row) * math.sqrt(row.size), row.size - 1))
    return p


def _p_of_t(t: float, freedom: int) -> float:
    """Return the two-sided p of Student's t, by the normal distribution at Wallace's (1959) transformation of it."""
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return max(2 * NORMAL.cdf(-z), SMALLEST_P)


def unit_of(values: Floats) -> float:
    """Return the power of two to divide values by so that squares do not vanish; 1 unless all values are tiny."""
    largest = max(
        (float(np.nanmax(sizes, initial=0.0)) for rows in row_blocks(values.shape) for sizes in [np.abs(values[rows])]),
        default=0.0,
    )
    return 1.0 if largest == 0 or largest >= _TINY else 2.0 ** math.floor(math.log2(largest))


def times(figure: float | None, unit: float) -> float | None:
    """Return a figure of values that are `unit` times as large."""
    return None if figure is None else figure * unit


def interval_times(ends: Interval | None, unit: float) -> Interval | None:
    """Return an interval of values that are `unit` times as large."""
    return None if ends is None else (ends[0] * unit, ends[1] * unit)


def cleaned(values: Floats) -> Floats:
    """Return values in which those not finite or beyond 1e100 are missing, and those whose square would vanish are 0.

    The array is not copied if nothing changes, so callers must not modify the returned one.
    """
    if not any(_changes(values[rows]).any() for rows in row_blocks(values.shape)):
        return values
    values = np.where(np.abs(values) < 1e100, values, np.nan)
    values[np.abs(values) < 1e-100] = 0.0
    return values


def _changes(values: Floats) -> NDArray[np.bool_]:
    sizes = np.abs(values)
    return (sizes >= 1e100) | ((sizes < 1e-100) & (sizes > 0))


def defined(values: Floats) -> list[float | None] | list[Interval | None]:
    """Return rows as numbers or intervals, None for NaN."""
    if values.ndim == 2:
        return [None if math.isnan(low) else (low, high) for low, high in values.tolist()]
    return [None if math.isnan(number) else number for number in values.tolist()]


def means(values: Floats) -> Floats:
    """Return the mean of each row, summed exactly, so that equal scores in another order tie."""
    rows = (row[np.isfinite(row)].tolist() for row in values)
    return np.array([math.fsum(row) / len(row) if row else math.nan for row in rows])


def subtract(scores: Floats, other: Floats) -> Floats:
    """Return scores minus other ones by case; NaN if either is missing, 0 if they differ by rounding only."""
    differences = np.asarray(scores - other)
    differences[np.abs(differences) <= ROUNDING * np.maximum(np.abs(scores), np.abs(other))] = 0.0
    return differences


def from_baseline(scores: Floats, baseline: int | None, rows: slice = slice(None)) -> Floats:
    """Return the difference of each row from the baseline, NaN for the baseline itself, and everywhere without one.

    `rows` selects the rows; by default all.
    """
    if baseline is None:
        return np.full_like(scores[rows], np.nan)
    deltas = subtract(scores[rows], scores[baseline])
    deltas[np.arange(len(scores))[rows] == baseline] = np.nan
    return deltas


def holm(p: Floats, weights: Floats | None = None) -> Floats:
    """Return p-values after Holm's step-down correction (Holm 1979); NaN stays NaN and does not count.

    `weights` are for his weighted form; by default all are equal.
    """
    weights = np.ones_like(p) if weights is None else weights
    order = np.argsort(p / weights)[: np.isfinite(p).sum()]
    remaining = np.cumsum(weights[order][::-1])[::-1]
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] / weights[order] * remaining))
    return adjusted


def sign_flip(differences: Floats, seed: int) -> Floats:
    """Return the two-sided p of the sign-flip permutation test for each row; NaN for fewer than two pairs."""
    testable = np.isfinite(differences).sum(axis=1) >= 2
    filled = np.nan_to_num(differences)  # a pair that agrees, like one that is missing, changes no flip
    p = np.full(len(filled), np.nan)
    sampled: list[int] = []
    for i in np.flatnonzero(testable).tolist():
        row = filled[i][filled[i] != 0]
        sizes = np.abs(row)
        if row.size == 0:
            p[i] = 1.0
        # Equal sizes make every flip a matter of counting signs: McNemar's exact test, whatever the number of pairs.
        elif np.ptp(sizes) <= ROUNDING * sizes.max():
            p[i] = mcnemar(int((row > 0).sum()), int((row < 0).sum()))
        # Few pairs are enumerated, which is exact; for many even ones the normal limit is closer than sampling is.
        elif row.size <= EXACT_PAIRS:
            signs = 1.0 - 2.0 * (np.arange(2**row.size)[:, None] >> np.arange(row.size) & 1)
            p[i] = (np.abs(signs @ row) >= _extreme(row)).mean()
        elif row.size > LIMIT_ALWAYS or (row.size > LIMIT_FROM and _even(row) >= LIMIT_EVEN):
            p[i] = _limit(row)
        else:
            sampled.append(i)
    for start in range(0, len(sampled), _ROWS):
        block = sampled[start : start + _ROWS]
        p[block] = _sampled(filled[block], seed)
    return p


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided exact p of pairs that differ in one or the other direction: McNemar's, binomial."""
    n, few = better + worse, min(better, worse)
    if n == 0:
        return 1.0
    # Logarithms, because binomial coefficients of thousands of pairs overflow.
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(few + 1)
    tail = np.exp(logarithms[n] - logarithms[k] - logarithms[n - k] - n * math.log(2)).sum()
    return float(min(1.0, max(2 * tail, SMALLEST_P)))


def flips(cases: int, count: int, rng: np.random.Generator, dtype: type[np.number[Any]] = np.float64) -> Signs:
    """Return random signs, count x cases."""
    # One random byte yields eight signs, which is much faster than a random number for each.
    noise: NDArray[np.uint8] = np.frombuffer(rng.bytes(count * cases // 8 + 1), np.uint8)
    signs = np.unpackbits(noise, count=count * cases).reshape(count, cases).astype(dtype)
    signs *= 2
    signs -= 1
    return signs


def _extreme(differences: Floats) -> Floats:
    """Return the threshold from which a flipped sum is as extreme as the observed one, allowing for rounding."""
    return np.asarray(np.abs(differences.sum(axis=-1)) - ROUNDING * np.abs(differences).sum(axis=-1))


def _even(row: Floats) -> float:
    """Return how many differences of one size would have the same kurtosis when flipped."""
    squares = (row / np.abs(row).max()) ** 2
    return float(squares.sum()) ** 2 / float((squares**2).sum())


def _limit(row: Floats) -> float:
    """Return the normal limit of the flips with the term for their kurtosis (Edgeworth), not below that of sampling."""
    z = abs(float(row.sum())) / math.sqrt(float((row**2).sum()))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    p = math.erfc(z / math.sqrt(2)) - density * (z**3 - 3 * z) / (6 * _even(row))
    return min(1.0, max(p, float(_smallest(row[None])[0])))


def _sampled(differences: Floats, seed: int) -> Floats:
    """Return p by random flips; the observed signs count as one of them, so p > 0 (Phipson & Smyth 2010)."""
    rng = np.random.default_rng([abs(seed), 1])
    cases = differences.shape[1]
    hits = np.ones(len(differences))
    for count in chunks(cases):
        hits += (np.abs(differences @ flips(cases, count, rng).T) >= _extreme(differences)[:, None]).sum(axis=1)
    p = hits / (RESAMPLES + 1)
    return np.asarray(np.where(hits > 1, p, _smallest(differences)))


def _smallest(differences: Floats) -> Floats:
    """Return p if no flip was as extreme: that of sampling, or a smaller bound on the share of all flips.

    The bound is Hoeffding's (1963), so that correcting for a large family leaves what is beyond doubt.
    """
    squares = differences.sum(axis=1) ** 2 / (differences**2).sum(axis=1)
    return np.asarray(np.clip(2 * np.exp(-squares / 2), SMALLEST_P, 1 / (RESAMPLES + 1)))
