"""Whether a later side is worse than an earlier one, or not worse by more than a margin that would matter.

Both are one-sided at 5%. Of many rows some fall by chance, so `worse` is corrected (Holm) over all rows, and over pools
of them: the mean, case by case, of the rows that share what was changed, in which a fall shows that no single row can
show. Not being worse needs no correction: it is said of a whole only where it holds of every part (Berger 1982).

A row in which fewer than five cases differ cannot give p < 5%, whichever way they differ; the test being conditional on
how large the differences are, such rows can be left out of what is corrected for (Tarone 1990).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.figures.class_intervals import FigureDifferences
from wtb.analysis.statistics.intervals import (
    NORMAL,
    ONE_SIDED,
    Floats,
    Interval,
    Z,
    intervals,
    rate_difference,
    t_quantile,
)
from wtb.analysis.statistics.missing.before_and_after import AtWorst, BeforeAndAfter, pooled
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.paired import Compare, Tested, cleaned, holm, paired_tests
from wtb.analysis.statistics.power.pairs import PAIRS, POWER, pairs_needed
from wtb.analysis.statistics.shift import shifts
from wtb.analysis.statistics.units import Units, by_unit, differences_by_unit
from wtb.core.classes.frozen import frozen

FEWEST_DIFFERENT = 5  # cases: 2 ** -5 is the first that is below 5%


@frozen(slots=True)
class Contrast:
    """One row, or pool of rows, of a later side compared with an earlier one; all turned so that a gain is positive.

    Attributes:
        n: cases that both sides have; `differ`: of these, those whose scores differ.
        delta: mean gain, or median where that is compared; None without cases.
        low: where the true gain lies above, 95 times of 100.
        worse: the one-sided p of a loss, corrected over the family; `better` that of a gain.
        margin: the smallest margin within which so many cases would show, 80 times of 100, that equal sides are equal;
            of a row, that it and all other rows are.
        spread: standard deviation of the differences.
        units: of evidence: the cases, or the clusters that they come from.
        ci: where the true gain lies, 95 times of 100.
        hangs_on: missing cells because of which a loss or a gain that is more than chance without them is not claimed;
            `worse`, `better` and `low` hold with these at their worst.
        low_without: `low` without missing cells.
        missing: how many cells are missing on either side.
    """

    n: int
    differ: int
    delta: float | None
    low: float | None
    worse: float | None
    better: float | None
    margin: float | None
    spread: float | None
    units: int = 0
    ci: Interval | None = None
    hangs_on: int | None = None
    low_without: float | None = None
    missing: int = 0


@frozen
class Sides:
    """The gains of rows by one metric: rows x cases, positive where later is better, NaN where one side is missing.

    rates: of scores that are 0 or 1 on both sides. compare: by the mean of the differences, or by their median.
    figures: of figures over all cells of a row, what tests and intervals are of. sides: the scores themselves with the
    cells that are missing, None where none are.
    """

    gains: Floats
    rates: bool = False
    compare: Compare = "mean"
    figures: FigureDifferences | None = None
    sides: BeforeAndAfter | None = None


Parts = tuple[list[Contrast], list[Contrast]]  # of each row, and of each pool


@frozen
class _Tests:
    """The rows of one table, pools after them, before what is said of them is corrected."""

    table: Floats
    tested: Sequence[Tested]
    lows: Floats
    worse: Floats
    better: Floats
    can_show: NDArray[np.bool_]
    units: Sequence[int]
    at_worst: AtWorst


def hold(
    metrics: Sequence[Sides], pools: Sequence[Sequence[int]] = (), *, seed: int = 0, units: Units = None
) -> list[Parts]:
    """Hold rows, and pools of them, against what they were, by metrics that share an error of 5%.

    Args:
        metrics: the gains by each; it gets as much of the error as each other, whatever rows it has.
        pools: numbers of the rows of each.
        seed: of the random signs.
        units: the cluster of each case, None where each is one of its own.

    Returns:
        By metric what was found of each row, and of each pool.
    """
    tests = [_tests(sides, pools, seed, units) for sides in metrics]
    plain = [_corrected(tests, [getattr(metric_tests, side) for metric_tests in tests]) for side in ("worse", "better")]
    lasting = [
        _corrected(tests, [getattr(metric_tests.at_worst, side) for metric_tests in tests])
        for side in ("worse", "better")
    ]
    return [
        _contrasts(metric_tests, [side[place] for side in plain], [side[place] for side in lasting], len(sides.gains))
        for place, (metric_tests, sides) in enumerate(zip(tests, metrics, strict=True))
    ]


def _tests(sides: Sides, pools: Sequence[Sequence[int]], seed: int, units: Units) -> _Tests:
    gains = cleaned(sides.gains)
    table = _with_pools(gains, pools)
    figures = None if sides.figures is None else _with_pooled(sides.figures, table, pools, units)
    is_rate = np.arange(len(table)) < (len(gains) if sides.rates else 0)  # pools have shares
    tested = paired_tests(table, seed=seed, rates=is_rate, compare=sides.compare, units=units, figures=figures)
    p = np.array([math.nan if test.p is None else test.p for test in tested])
    signs = np.array([test.delta or 0.0 for test in tested])
    each = differences_by_unit(table, units)
    lows = figures.inner[:, 0] if figures else _lower(table, is_rate, sides.compare, units)
    worse, better = np.where(signs < 0, p / 2, 1 - p / 2), np.where(signs > 0, p / 2, 1 - p / 2)
    at_worst = AtWorst(worse, better, lows, np.zeros(len(table), dtype=np.int64))
    if sides.sides is not None:
        parts = [*([row] for row in range(len(gains))), *pools]
        at_worst = sides.sides.at_worst(
            parts, at_worst, partial(_lower, rates=False, compare=sides.compare, units=units)
        )
    return _Tests(
        table,
        tested,
        lows,
        worse,
        better,
        np.count_nonzero(np.nan_to_num(each), axis=1) >= FEWEST_DIFFERENT,
        np.isfinite(each).sum(axis=1).tolist(),
        at_worst,
    )


def _with_pools(rows: Floats, pools: Sequence[Sequence[int]]) -> Floats:
    """Rows, and after them pools of these."""
    return np.vstack([rows, *(pooled(rows, pool) for pool in pools)]) if pools else rows


def _with_pooled(
    figures: FigureDifferences, table: Floats, pools: Sequence[Sequence[int]], units: Units
) -> FigureDifferences:
    """Figures of rows, and after them those of pools: of means over rows, which have intervals if all of these do."""
    each = by_unit(table[len(figures.ends) :], units)
    has_none = np.array([bool(np.isnan(figures.ends[list(pool)]).any()) for pool in pools], dtype=np.bool_)
    ends, inner = (
        np.vstack([of_rows, np.where(has_none[:, None], np.nan, intervals(each, z))])
        for of_rows, z in ((figures.ends, Z), (figures.inner, ONE_SIDED))
    )
    return FigureDifferences(_with_pools(figures.swaps, pools), ends, inner)


def _corrected(tests: Sequence[_Tests], one_sided: Sequence[Floats]) -> list[Floats]:
    """p of a loss, or of a gain, corrected over all that can show one; what cannot keeps its own."""
    p = [each.copy() for each in one_sided]
    can_show = [metric_tests.can_show & np.isfinite(each) for metric_tests, each in zip(tests, p, strict=True)]
    weights = np.concatenate([np.full(rows.sum(), 1 / max(rows.sum(), 1)) for rows in can_show] or [np.zeros(0)])
    adjusted = holm(
        np.concatenate([each[rows] for each, rows in zip(p, can_show, strict=True)] or [np.zeros(0)]), weights
    )
    start = 0
    for each, rows in zip(p, can_show, strict=True):
        each[rows] = adjusted[start : start + rows.sum()]
        start += rows.sum()
    return p


def _contrasts(tests: _Tests, plain: Sequence[Floats], lasting: Sequence[Floats], rows: int) -> Parts:
    (worse, better), missing = lasting, tests.at_worst.missing
    is_hanging = np.zeros(len(missing), dtype=np.bool_)
    for before, after in zip(plain, lasting, strict=True):
        is_hanging |= (before < SIGNIFICANT) & ~(after < SIGNIFICANT) & (missing > 0)
    together = sum(tested.spread is not None for tested in tests.tested[:rows])
    contrasts = [
        Contrast(
            n=tested.n,
            differ=int(np.count_nonzero(np.nan_to_num(tests.table[i]))),
            delta=tested.delta,
            low=_defined(tests.at_worst.lows[i]),
            worse=_defined(worse[i]),
            better=_defined(better[i]),
            margin=None
            if tested.spread is None
            else _defined(margin_of(tests.units[i], tested.spread, together if i < rows else 1)),
            spread=tested.spread,
            units=tests.units[i],
            ci=tested.ci,
            hangs_on=int(missing[i]) if is_hanging[i] else None,
            low_without=_defined(tests.lows[i]),
            missing=int(missing[i]),
        )
        for i, tested in enumerate(tests.tested)
    ]
    return contrasts[:rows], contrasts[rows:]


def cases_for(margin: float, spreads: Floats, correlation: Floats | None = None) -> int:
    """Return how many cases, or clusters, show 80 times of 100 that no row lost as much as a margin, if none lost any.

    Args:
        margin: The loss that would matter, in the unit of the metric.
        spreads: The standard deviation of the paired differences of each row, in that unit.
        correlation: Of the differences of the rows; None if they vary independently.
    """
    return pairs_needed(np.full(len(spreads), margin), spreads, ONE_SIDED, correlation)


def margin_of(cases: int, spread: float, rows: int = 1) -> float:
    """Return the margin that so many cases can show, 80 times of 100, where the two sides are equal; NaN for too few.

    rows: How many have to show it, all of them together.
    """
    if cases < PAIRS:
        return math.nan
    z_power = NORMAL.inv_cdf(POWER ** (1 / max(rows, 1)))
    return (t_quantile(cases - 1, ONE_SIDED) + t_quantile(cases - 1, z_power)) * spread / math.sqrt(cases)


def _defined(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _lower(gains: Floats, rates: NDArray[np.bool_] | bool, compare: Compare, units: Units) -> Floats:
    """From where on the true gain of each row lies, 95 times of 100; NaN where nothing varies."""
    if compare == "median":
        return np.asarray(shifts(by_unit(gains, units))[1][:, 0])  # of an interval of 95%: at 97.5% rather than 95%
    lows = intervals(by_unit(gains, units), ONE_SIDED)[:, 0]
    if units is None and np.any(rates):
        lows[rates] = rate_difference(gains[rates], ONE_SIDED)[:, 0]
    return np.asarray(lows)
