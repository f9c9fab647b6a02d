"""Tests of paired differences: is their mean other than chance? The case is the pair.

The sign-flip permutation test (Fisher 1935) supposes that without a true difference each case's could as well have had
the other sign. Where all that differ do so by as much, as for pass and fail, it is the exact test of McNemar (1947).
Skewed differences can have the mean 0 without that symmetry, so there the test of Hall's transformed t (1992), which is
of the mean, has to agree: the larger p counts.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.figures.class_intervals import FigureDifferences
from wtb.analysis.statistics.intervals import (
    NORMAL,
    RESAMPLES,
    ROUNDING,
    Floats,
    Interval,
    Z,
    chunks,
    intervals,
    is_constant,
    rate_difference,
    row_blocks,
    skewness,
    transformed_t,
)
from wtb.analysis.statistics.power.pairs import spreads
from wtb.analysis.statistics.shift import shifts, signed_ranks, spreads_of
from wtb.analysis.statistics.units import FEWEST, Units, by_unit, differences_by_unit
from wtb.core.classes.frozen import frozen

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
    """One row of paired differences. None where its pairs do not define it.

    `delta` is their mean, or of typical ones their median. `effect` is that over `spread`, the standard deviation of
    the differences. `units` are the pairs, or the clusters that they come from.
    """

    n: int
    delta: float | None
    ci: Interval | None
    p: float | None
    effect: float | None
    spread: float | None
    units: int = 0

    def times(self, unit: float) -> Tested:
        """Return the same of differences that are `unit` times as large."""
        return replace(
            self,
            delta=times(self.delta, unit),
            ci=interval_times(self.ci, unit),
            spread=times(self.spread, unit),
        )


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
        differences: rows x cases, NaN where one is missing.
        seed: of the random signs.
        rates: which rows are of scores that are 0 or 1 on both sides.
        compare: by the mean of the differences, or by their median (see `shift`).
        units: the cluster of each case, None where each case is one of its own.
        figures: of figures over all cells of a row, what p is of and the intervals; else both are of the differences.

    Returns:
        One a row. n counts cases; p is None for fewer than two units, or six clusters.
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
    """Return intervals and p that say the same: an interval is without 0 exactly where p < 5%.

    Test and interval are made in two ways, each of which holds. Where they disagree the more careful one counts.
    """
    p = p.copy()
    with np.errstate(invalid="ignore", divide="ignore"):
        is_apart = (ci[:, 0] > 0) | (ci[:, 1] < 0)
        half = np.where(middle > 0, middle - ci[:, 0], ci[:, 1] - middle)
        ends = np.array([2 * NORMAL.cdf(-Z * size) if np.isfinite(size) else np.nan for size in np.abs(middle) / half])
        is_late = (p < ALPHA) & np.isfinite(ends) & ~is_apart
        p[is_late] = np.clip(ends[is_late], ALPHA, 1.0)
    return with_zero(ci, (p >= ALPHA) & is_apart), p


def with_zero(ci: Floats, which: NDArray[np.bool_]) -> Floats:
    """Return intervals of which some are widened to hold 0."""
    widened = np.stack([np.minimum(ci[:, 0], 0.0), np.maximum(ci[:, 1], 0.0)], axis=1)
    return np.where(which[:, None], widened, ci)


def _swapped(swaps: Floats, differences: Floats) -> Floats:
    """What is swapped of the pairs that have a difference, without what rounding leaves."""
    largest = np.nanmax(np.abs(swaps), axis=1, initial=0.0, keepdims=True)
    swaps = np.where(np.abs(swaps) > ROUNDING * largest, swaps, np.where(np.isnan(swaps), np.nan, 0.0))
    return cleaned(np.where(np.isfinite(differences), swaps, np.nan))


def chance(differences: Floats, seed: int, compare: Compare = "mean") -> Floats:
    """Two-sided p of the paired test for each row (rows x units); NaN for fewer than two pairs."""
    return sign_flip(signed_ranks(differences), seed) if compare == "median" else mean_test(differences, seed)


def mean_test(differences: Floats, seed: int) -> Floats:
    """Two-sided p for each row: that of `sign_flip`, or where it is larger that of a t without the skewness.

    Args:
        differences: rows x units, NaN where one is missing.
        seed: of the random signs.

    Returns:
        One p a row; NaN for fewer than two pairs.
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
    """Two-sided p of Student's t, by the normal distribution at Wallace's (1959) transformation of it."""
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return max(2 * NORMAL.cdf(-z), SMALLEST_P)


def unit_of(values: Floats) -> float:
    """Return the power of two to divide values by, so that squares of tiny ones are not 0; 1 unless all are tiny."""
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
    """The values, in which what is not finite or beyond 1e100 is missing, and what no square can hold is 0.

    They are not copied where there is nothing to change: nobody may change what this returns.
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
    """The rows as numbers or intervals, None where NaN."""
    if values.ndim == 2:
        return [None if math.isnan(low) else (low, high) for low, high in values.tolist()]
    return [None if math.isnan(value) else value for value in values.tolist()]


def means(values: Floats) -> Floats:
    """The mean of each row; summed exactly, so that equal scores in another order tie."""
    rows = (row[np.isfinite(row)].tolist() for row in values)
    return np.array([math.fsum(row) / len(row) if row else math.nan for row in rows])


def subtract(scores: Floats, other: Floats) -> Floats:
    """Scores less other ones, case by case; NaN where one is missing, 0 where they differ by rounding only."""
    differences = np.asarray(scores - other)
    differences[np.abs(differences) <= ROUNDING * np.maximum(np.abs(scores), np.abs(other))] = 0.0
    return differences


def from_baseline(scores: Floats, baseline: int | None, rows: slice = slice(None)) -> Floats:
    """The difference of each row from the baseline's, NaN in the baseline's own; NaN everywhere without one.

    rows: of which rows; of all by default.
    """
    if baseline is None:
        return np.full_like(scores[rows], np.nan)
    deltas = subtract(scores[rows], scores[baseline])
    deltas[np.arange(len(scores))[rows] == baseline] = np.nan
    return deltas


def holm(p: Floats, weights: Floats | None = None) -> Floats:
    """p-values after Holm's step-down correction (Holm 1979); NaN stays NaN and does not count.

    weights: how much each matters beside the others (his weighted form); all the same where there are none.
    """
    weights = np.ones_like(p) if weights is None else weights
    order = np.argsort(p / weights)[: np.isfinite(p).sum()]
    remaining = np.cumsum(weights[order][::-1])[::-1]
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] / weights[order] * remaining))
    return adjusted


def sign_flip(differences: Floats, seed: int) -> Floats:
    """Two-sided p of the sign-flip permutation test for each row; NaN for fewer than two pairs."""
    testable = np.isfinite(differences).sum(axis=1) >= 2
    filled = np.nan_to_num(differences)  # a pair that agrees, like one that is missing, changes no flip
    p = np.full(len(filled), np.nan)
    sampled: list[int] = []
    for i in np.flatnonzero(testable).tolist():
        row = filled[i][filled[i] != 0]
        sizes = np.abs(row)
        if row.size == 0:
            p[i] = 1.0
        elif np.ptp(sizes) <= ROUNDING * sizes.max():
            p[i] = mcnemar(int((row > 0).sum()), int((row < 0).sum()))
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
    """Two-sided exact p of so many pairs that differ one way and the other: McNemar's by the binomial distribution."""
    n, few = better + worse, min(better, worse)
    if n == 0:
        return 1.0
    logarithms = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(few + 1)
    tail = np.exp(logarithms[n] - logarithms[k] - logarithms[n - k] - n * math.log(2)).sum()
    return float(min(1.0, max(2 * tail, SMALLEST_P)))


def flips(cases: int, count: int, rng: np.random.Generator, dtype: type[np.number[Any]] = np.float64) -> Signs:
    """Random signs, count x cases."""
    noise: NDArray[np.uint8] = np.frombuffer(rng.bytes(count * cases // 8 + 1), np.uint8)
    signs = np.unpackbits(noise, count=count * cases).reshape(count, cases).astype(dtype)
    signs *= 2
    signs -= 1
    return signs


def _extreme(differences: Floats) -> Floats:
    """From where the sum of flipped differences is as extreme as the observed one, rounding allowed for."""
    return np.asarray(np.abs(differences.sum(axis=-1)) - ROUNDING * np.abs(differences).sum(axis=-1))


def _even(row: Floats) -> float:
    """How many differences of one size would have the same kurtosis when flipped."""
    squares = (row / np.abs(row).max()) ** 2
    return float(squares.sum()) ** 2 / float((squares**2).sum())


def _limit(row: Floats) -> float:
    """The normal limit of the flips with the term for their kurtosis (Edgeworth), not below that of sampling."""
    z = abs(float(row.sum())) / math.sqrt(float((row**2).sum()))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    p = math.erfc(z / math.sqrt(2)) - density * (z**3 - 3 * z) / (6 * _even(row))
    return min(1.0, max(p, float(_smallest(row[None])[0])))


def _sampled(differences: Floats, seed: int) -> Floats:
    """p by random flips; the observed signs count as one of them, so p > 0 (Phipson & Smyth 2010)."""
    rng = np.random.default_rng([abs(seed), 1])
    cases = differences.shape[1]
    hits = np.ones(len(differences))
    for count in chunks(cases):
        hits += (np.abs(differences @ flips(cases, count, rng).T) >= _extreme(differences)[:, None]).sum(axis=1)
    p = hits / (RESAMPLES + 1)
    return np.asarray(np.where(hits > 1, p, _smallest(differences)))


def _smallest(differences: Floats) -> Floats:
    """The p where no flip was as extreme: that of sampling, or a bound on the share of all flips where that is smaller.

    Hoeffding (1963) bounds it, so that correcting for a large family leaves what is beyond doubt.
    """
    squares = differences.sum(axis=1) ** 2 / (differences**2).sum(axis=1)
    return np.asarray(np.clip(2 * np.exp(-squares / 2), SMALLEST_P, 1 / (RESAMPLES + 1)))
