"""Margins: scores before and after a change, and whether a later side is worse, or not worse by more than matters.

Both tests are one-sided at 5%. Of many rows some fall by chance, so `worse` is corrected (Holm) over all rows, and over
pools of them: the mean by case of rows that share a change, in which a fall may be significant that no single row
shows. Not being worse needs no correction: a whole is not worse only if every part is not (Berger 1982). A row in which
fewer than five cases differ cannot give p < 5%, whichever way they differ; the test is conditional on the sizes of the
differences, so such rows can be left out of the correction (Tarone 1990).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.claims import SIGNIFICANT, Claim, Pairs, Side
from wtb.analysis.statistics.class_intervals import FigureDifferences
from wtb.analysis.statistics.intervals import (
    NORMAL,
    ONE_SIDED,
    Floats,
    Interval,
    Units,
    Z,
    by_unit,
    differences_by_unit,
    intervals,
    rate_difference,
    t_quantile,
)
from wtb.analysis.statistics.paired import Compare, Tested, chance, cleaned, holm, paired_tests, shifts
from wtb.analysis.statistics.power import PAIRS, POWER, pairs_needed
from wtb.core.frozen import frozen


class AtWorst(NamedTuple):
    """Tests of rows, then pools, with missing cells at the worst for each claim.

    Attributes:
        worse: The one-sided p of a loss.
        better: The one-sided p of a gain.
        lows: The lower 95% bounds of the true gains.
        missing: How many cells are missing on either side.
    """

    worse: Floats
    better: Floats
    lows: Floats
    missing: NDArray[np.int64]


@frozen
class BeforeAndAfter:
    """Scores of rows before a change, followed by those of the same rows after it, in one table.

    Attributes:
        pairs: The table.
        is_higher_better: True if higher scores are better.
    """

    pairs: Pairs
    is_higher_better: bool = True

    def at_worst(self, parts: Sequence[Sequence[int]], without: AtWorst, lower: Callable[[Floats], Floats]) -> AtWorst:
        """Return the tests with missing cells at their worst.

        Args:
            parts: The rows of each pool; a row alone is a pool of one.
            without: The tests without missing cells.
            lower: Returns the lower bounds of gains.
        """
        missing = np.array([sum(self._count(row) for row in rows) for rows in parts], dtype=np.int64)
        lows = without.lows.copy()
        some = np.flatnonzero((missing > 0) & np.isfinite(lows)).tolist()
        if some:
            gains = np.stack([self._gains(parts[part], "gain", every=False).gains for part in some])
            lows[some] = np.fmin(lows[some], lower(gains))
        return AtWorst(
            self._tested(parts, without.worse, missing, "loss"),
            self._tested(parts, without.better, missing, "gain"),
            lows,
            missing,
        )

    @property
    def _rows(self) -> int:
        return len(self.pairs.scores) // 2

    def _count(self, row: int) -> int:
        return self.pairs.count_missing(self._rows + row, row)

    def _tested(
        self, parts: Sequence[Sequence[int]], p: Floats, missing: NDArray[np.int64], claim: Literal["loss", "gain"]
    ) -> Floats:
        """Return one-sided p-values, each the larger of those with and without missing cells at their worst."""
        worst_p = p.copy()
        tables, numbers = [], []
        # Missing cells can only weaken a claim, so tests that claim nothing are left as they are.
        for part in np.flatnonzero((p < SIGNIFICANT) & (missing > 0)).tolist():
            worst_p[part] = 1.0
            excess, every = (self._gains(parts[part], claim, every=every) for every in (False, True))
            # Filled completely the difference may turn its sign; then no excess of missing cells makes it a claim.
            if all((gains.mean > 0) == (claim == "gain") and gains.mean != 0 for gains in (excess, every)):
                tables.append(excess.tested)
                numbers.append(part)
        if tables:
            each = differences_by_unit(np.stack(tables), self.pairs.units)
            two_sided = chance(each, self.pairs.seed, self.pairs.compare)
            worst_p[numbers] = np.fmax(p[numbers], np.where(np.isnan(two_sided), 1.0, two_sided / 2))
        return worst_p

    def _gains(self, rows: Sequence[int], claim: Literal["loss", "gain"], *, every: bool) -> _Gains:
        """Fill in all missing cells of a pool, or only their excess, at the worst for a claim."""
        sign = 1.0 if self.is_higher_better else -1.0
        side: Side = 1 if (claim == "gain") == self.is_higher_better else -1
        both = [self.pairs.fills(Claim(self._rows + row, row, side)) for row in rows]
        fills = [of_every if every else of_excess for of_every, of_excess in both]
        everyone = list(range(len(rows)))
        gains = pooled(np.stack([fill.differences for fill in fills]), everyone)
        tested = pooled(np.stack([fill.differences if fill.swaps is None else fill.swaps for fill in fills]), everyone)
        return _Gains(sign * gains, sign * tested, sign * float(np.nanmean([fill.estimate for fill in fills])))


class _Gains(NamedTuple):
    """Gains of a pool by case, the values that tests use, and the mean (or typical) gain."""

    gains: Floats
    tested: Floats
    mean: float


def pooled(rows: Floats, which: Sequence[int]) -> Floats:
    """Return the mean of these rows by case, over the rows that have it; NaN if none has."""
    rows = rows[list(which)]
    present = np.isfinite(rows)
    count = present.sum(axis=0)
    return np.where(count > 0, np.where(present, rows, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


FEWEST_DIFFERENT = 5  # cases: 2 ** -5 is the first that is below 5%


@frozen(slots=True)
class Contrast:
    """One row, or pool of rows, of a later side compared with an earlier one, signed so that a gain is positive.

    Attributes:
        n: Cases that both sides have.
        differ: Cases whose scores differ.
        delta: The mean gain, or the median if that is compared; None without cases.
        low: The lower 95% bound of the true gain.
        worse: The one-sided p of a loss, corrected over the family.
        better: The one-sided p of a gain, corrected over the family.
        margin: The smallest margin within which so many cases would show, with a power of 80%, that equal sides are
            equal; for a row, that it and all other rows are.
        spread: The standard deviation of the differences.
        units: Units of evidence: the cases, or their clusters.
        ci: The 95% interval of the true gain.
        hangs_on: Missing cells that prevent the claim of a loss or a gain that is significant without them; `worse`,
            `better` and `low` are those with these cells at their worst.
        low_without: `low` without missing cells.
        missing: How many cells are missing on either side.
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
    """Gains of rows by one metric: rows x cases, positive if the later side is better, NaN if either side is missing.

    Attributes:
        gains: The gains.
        rates: True if scores are 0 or 1 on both sides.
        compare: Compare by the mean of the differences, or by their median.
        figures: For figures over all cells of a row, the differences that tests and intervals use.
        sides: The scores with the missing cells; None if none are missing.
    """

    gains: Floats
    rates: bool = False
    compare: Compare = "mean"
    figures: FigureDifferences | None = None
    sides: BeforeAndAfter | None = None


Parts = tuple[list[Contrast], list[Contrast]]  # of each row, and of each pool


@frozen
class _Tests:
    """The tests of the rows of one table, and of its pools, before correction.

    `without` has their sides without the missing cells, `at_worst` with these at their worst.
    """

    table: Floats
    tested: Sequence[Tested]
    can_show: NDArray[np.bool_]
    units: Sequence[int]
    without: AtWorst
    at_worst: AtWorst


def hold(
    metrics: Sequence[Sides], pools: Sequence[Sequence[int]] = (), *, seed: int = 0, units: Units = None
) -> list[Parts]:
    """Test rows, and pools of them, against their earlier results, by metrics that share an error of 5%.

    Args:
        metrics: The gains by each metric. Each gets the same part of the error, whatever rows it has.
        pools: The numbers of the rows of each pool.
        seed: The seed of the random signs.
        units: The cluster of each case; None if each is its own.

    Returns:
        By metric the contrasts of each row, and of each pool.
    """
    tests = [_tests(sides, pools, seed, units) for sides in metrics]
    without, at_worst = [each.without for each in tests], [each.at_worst for each in tests]
    plain, lasting = (
        [_corrected(tests, [each.worse for each in kind]), _corrected(tests, [each.better for each in kind])]
        for kind in (without, at_worst)
    )
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
    at_worst = without = AtWorst(worse, better, lows, np.zeros(len(table), dtype=np.int64))
    if sides.sides is not None:
        parts = [*([row] for row in range(len(gains))), *pools]
        lower = partial(_lower, rates=False, compare=sides.compare, units=units)
        at_worst = sides.sides.at_worst(parts, without, lower)
    can_show = np.count_nonzero(np.nan_to_num(each), axis=1) >= FEWEST_DIFFERENT
    return _Tests(table, tested, can_show, np.isfinite(each).sum(axis=1).tolist(), without, at_worst)


def _with_pools(rows: Floats, pools: Sequence[Sequence[int]]) -> Floats:
    """Return rows, followed by pools of them."""
    return np.vstack([rows, *(pooled(rows, pool) for pool in pools)]) if pools else rows


def _with_pooled(
    figures: FigureDifferences, table: Floats, pools: Sequence[Sequence[int]], units: Units
) -> FigureDifferences:
    """Return figures of rows, followed by pools: means over rows, with intervals if all of these have one."""
    each = by_unit(table[len(figures.ends) :], units)
    has_none = np.array([bool(np.isnan(figures.ends[list(pool)]).any()) for pool in pools], dtype=np.bool_)
    ends, inner = (
        np.vstack([of_rows, np.where(has_none[:, None], np.nan, intervals(each, z))])
        for of_rows, z in ((figures.ends, Z), (figures.inner, ONE_SIDED))
    )
    return FigureDifferences(_with_pools(figures.swaps, pools), ends, inner)


def _corrected(tests: Sequence[_Tests], one_sided: Sequence[Floats]) -> list[Floats]:
    """Return the p-values of a loss, or a gain, corrected over all tests that can show one; others are unchanged."""
    p = [each.copy() for each in one_sided]
    can_show = [metric_tests.can_show & np.isfinite(each) for metric_tests, each in zip(tests, p, strict=True)]
    # These weights give each metric the same part of the error, however many rows it has.
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
            low_without=_defined(tests.without.lows[i]),
            missing=int(missing[i]),
        )
        for i, tested in enumerate(tests.tested)
    ]
    return contrasts[:rows], contrasts[rows:]


def cases_for(margin: float, spreads: Floats, correlation: Floats | None = None) -> int:
    """Return how many cases, or clusters, show with 80% power that no row lost as much as a margin, if none lost any.

    Args:
        margin: The loss that would matter, in the unit of the metric.
        spreads: The standard deviation of the paired differences of each row, in that unit.
        correlation: Of the differences of the rows; None if they vary independently.
    """
    return pairs_needed(np.full(len(spreads), margin), spreads, ONE_SIDED, correlation)


def margin_of(cases: int, spread: float, rows: int = 1) -> float:
    """Return the margin that so many cases can show with 80% power if the two sides are equal; NaN for too few.

    `rows` is the number of rows that have to show it, all of them together.
    """
    if cases < PAIRS:
        return math.nan
    z_power = NORMAL.inv_cdf(POWER ** (1 / max(rows, 1)))
    return (t_quantile(cases - 1, ONE_SIDED) + t_quantile(cases - 1, z_power)) * spread / math.sqrt(cases)


def _defined(number: float) -> float | None:
    return None if math.isnan(number) else float(number)


def _lower(gains: Floats, rates: NDArray[np.bool_] | bool, compare: Compare, units: Units) -> Floats:
    """Return the lower 95% bound of the true gain of each row; NaN if nothing varies."""
    if compare == "median":
        return np.asarray(shifts(by_unit(gains, units))[1][:, 0])  # of an interval of 95%: at 97.5% rather than 95%
    lows = intervals(by_unit(gains, units), ONE_SIDED)[:, 0]
    if units is None and np.any(rates):
        lows[rates] = rate_difference(gains[rates], ONE_SIDED)[:, 0]
    return np.asarray(lows)
