"""Tests that hold however often one looks: confidence sequences, and night after night against a fixed reference.

A figure tested at 5% each time somebody looks is wrong far more often than that. A confidence sequence is not: with 95%
it contains the truth at all times together. For bounded scores it comes from betting against each candidate mean
(Waudby-Smith & Ramdas 2024): capital that starts at 1 and grows only if the candidate is wrong reaches 40 in at most
2.5% of sweeps (Ville 1939). For unbounded scores there is an asymptotic one, as good as its normal limit (Waudby-Smith,
Arbour, Sinha, Kennedy & Ramdas 2024), so it is used only for many units that are not skewed.

Scores of a row are in the order in which cases were drawn, which must be random and decided beforehand. A look uses a
prefix of that order, never just the cases that finished first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import NORMAL, ONE_SIDED, Floats, Units, differences_by_unit, intervals, skewness
from wtb.analysis.statistics.paired import SMALLEST_P
from wtb.core.frozen import frozen

_CAUTION = 0.5  # of the capital that may be bet on one case
_STEPS = 24  # of bisection: to a ten millionth of the scale
# Units from which on the normal limit is near enough. Losses that are seldom have to show by then: of 3% of the units
# none is among the first 130 in 2% of sweeps. A smaller level, of more rows, lies further out in the tail.
_LIMIT_FROM, _LIMIT_PER_DOUBLING = 100, 30
_LIMIT_SKEWED = 0.15  # skewness over the root of the units, beyond which it is not near enough
_TUNED = 100  # units at which the asymptotic sequence is narrowest


def bounded(values: Floats, low: float, high: float, alpha: float = 0.05) -> Floats:
    """Return a confidence sequence for the mean of each row, by betting.

    Args:
        values: Rows x units in the order in which they were drawn, all within the bounds, NaN where missing.
        low: The lower bound of values.
        high: The upper bound of values.
        alpha: The probability that the sequence of a row ever misses the truth.

    Returns:
        Rows x 2, within the bounds.
    """
    bets = _Bets(values, low, high, alpha)
    ends = np.stack([bets.lower(), 1.0 - _Bets(-values, -high, -low, alpha).lower()], axis=1)
    ends.sort(axis=1)  # where the truth was missed, nothing may be left between them
    return np.asarray(low + (high - low) * ends)


def capital(differences: Floats, span: float, alpha: float) -> Floats:
    """Return for each row the largest capital so far from betting on a positive mean.

    If the mean is 0 or less it reaches 1 / alpha in at most a share alpha of sweeps, whenever one looks, so a positive
    mean may be claimed as soon as it does.

    Args:
        differences: Rows x units in the order in which they were drawn, from -span to span, NaN where missing.
        span: The largest possible difference.
        alpha: The level for which the stakes are chosen.
    """
    # `_Bets` splits its alpha between two sides, and this claim has one.
    bets = _Bets(differences, -span, span, 2 * alpha)
    # e^700 is nearly the largest number; beyond it every claim is made anyway.
    return np.asarray(np.exp(np.minimum(bets.won(np.full(len(differences), 0.5)), 700.0)))


def claims(differences: Floats, span: float, alpha: float = 0.05, family: int = 0) -> NDArray[np.bool_]:
    """Return which rows may be claimed to have a positive mean.

    Any claim is wrong at any time in at most a share alpha of sweeps. A claim is permanent: more units never revoke it.

    Args:
        differences: Rows x units in the order in which they were drawn, from -span to span, NaN where missing.
        span: The largest possible difference.
        alpha: The level of the whole family.
        family: How many claims could be made; 0 for one per row.
    """
    each = max(alpha / max(family, len(differences), 1), SMALLEST_P)
    return np.asarray(capital(differences, span, each) >= 1 / each)


def limit_from(rows: int) -> int:
    """Return the number of units from which intervals without bounds are shown, if any of so many rows may be looked
    at.
    """
    return _LIMIT_FROM + math.ceil(_LIMIT_PER_DOUBLING * math.log2(max(rows, 1)))


def asymptotic(values: Floats, alpha: float = 0.05, rows: int = 1) -> Floats:
    """Return an asymptotic confidence sequence for the mean of each row of unbounded values.

    Args:
        values: Rows x units, NaN where missing.
        alpha: The probability that the sequence of a row ever misses the truth.
        rows: How many rows there are in all, any of which may be looked at.

    Returns:
        Rows x 2; NaN for fewer than `limit_from(rows)` units, for skewed values, and without variation.
    """
    alpha, n = max(alpha, SMALLEST_P), np.isfinite(values).sum(axis=1).astype(float)
    bounds = np.full((len(values), 2), np.nan)
    enough = n >= limit_from(rows)
    enough[enough] = skewness(values[enough]) <= _LIMIT_SKEWED  # NaN, without variation, is not
    if enough.any():
        some, count = values[enough], n[enough]
        means, spreads = np.nanmean(some, axis=1), np.nanstd(some, axis=1, ddof=1)
        square = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / _TUNED
        scaled = count * square + 1
        half = spreads * np.sqrt(2 * scaled / (count**2 * square) * np.log(np.sqrt(scaled) / alpha))
        bounds[enough] = np.stack([means - half, means + half], axis=1)
    return bounds


class _Bets:
    """Rows scaled to 0..1 and the stakes on each unit, which depend on the units before it only."""

    def __init__(self, values: Floats, low: float, high: float, alpha: float) -> None:
        present = np.isfinite(values)
        self.x = np.where(present, np.clip((values - low) / (high - low), 0.0, 1.0), 0.0)
        self.present = present
        alpha = max(alpha, SMALLEST_P)
        self.threshold = math.log(2 / alpha)
        count = present.cumsum(axis=1)
        means = (0.5 + self.x.cumsum(axis=1)) / (count + 1)
        squares = np.where(present, (self.x - means) ** 2, 0.0)
        variance = (0.25 + squares.cumsum(axis=1)) / (count + 1)
        # The stake on a unit may use only the units before it: otherwise capital could grow under a true candidate.
        before = np.concatenate([np.full((len(values), 1), 0.25), variance[:, :-1]], axis=1)
        turn = np.maximum(count, 1)
        self.stakes = np.sqrt(2 * math.log(2 / alpha) / (before * turn * np.log1p(turn)))

    def won(self, means: Floats) -> Floats:
        """Return the logarithm of the largest capital so far of betting that each row's mean exceeds the candidate."""
        # Losing at most half of the capital on one unit keeps it positive whatever the unit is.
        stakes = np.minimum(self.stakes, _CAUTION / np.maximum(means, 1e-12)[:, None])
        gains = np.log1p(np.where(self.present, stakes * (self.x - means[:, None]), 0.0))
        return np.asarray(gains.cumsum(axis=1).max(axis=1, initial=0.0))

    def lower(self) -> Floats:
        """Return the highest candidate that betting on more has excluded: capital falls as the candidate rises."""
        low, high = np.zeros(len(self.x)), np.ones(len(self.x))
        for _ in range(_STEPS):
            middle = (low + high) / 2
            is_out = self.won(middle) >= self.threshold
            low, high = np.where(is_out, middle, low), np.where(is_out, high, middle)
        return low


NIGHTS: Final = 20  # in a row, in which some night is called worse in at most 5% of series where nothing was changed
LEVEL: Final = 0.05 / NIGHTS  # of one night, for all of its tests together
ALONE: Final = 0.4 * LEVEL  # of tonight against the reference
TOGETHER: Final = 0.4 * LEVEL  # of the last nights against the reference
BASELINE: Final = 0.2 * LEVEL  # of tonight against the baseline, which may have moved or have been lucky
FIRST: Final = 0.8 * LEVEL  # of the first night against the baseline, beside which there is no other test
WINDOW: Final = 4  # nights that are tested together
JOINING: Final = 4  # first nights that count as repeats of the reference, so that its luck averages out
_FINEST = 10  # repeats of scores of whole numbers, up to which their steps are recognized
_LIMIT = 1.5  # standard deviations, below which the normal limit is near enough


@frozen
class NightTest:
    """A test of the last nights against the reference.

    Attributes:
        nights: How many nights were tested together.
        p: The one-sided p of a fall, not corrected.
        level: The level below which p counts as a fall.
        before: The mean of the reference over the tested cases.
        after: The mean of the nights.
        units: How many cases, or clusters, were tested.
        low: The lower 95% bound of the true gain.
        margin: The loss that would matter; None if any does.
        has_recovered: True if tonight fell less than half as far as the nights together.
    """

    nights: int
    p: float
    level: float
    before: float
    after: float
    units: int
    low: float
    margin: float | None = None
    has_recovered: bool = False

    @property
    def is_fall(self) -> bool:
        """True if p is below its level, the fall lasts, and the loss is not shown to be within the margin."""
        is_within = self.margin is not None and self.low > -self.margin
        return self.p < self.level and not is_within and not self.has_recovered


def night_tests(
    reference: Sequence[Floats],
    nights: Sequence[Floats],
    *,
    metrics: int = 1,
    units: Units = None,
    scale: tuple[float, float] | None = None,
    margin: float | None = None,
) -> list[list[NightTest]]:
    """Test the last of some nights, and the last few together, against a reference.

    Args:
        reference: The reference and the nights that count as its repeats: each rows x cases, higher is better, NaN
            where missing.
        nights: Later nights of the same shape, oldest first; tonight is the last one.
        metrics: How many deciding metrics share the level.
        units: The cluster of each case; None if each is its own.
        scale: The bounds of scores; None if unknown.
        margin: The loss that would matter; None if any does.

    Returns:
        The tests of each row, followed by those of all rows together, if there are several.
    """
    rows = len(nights[-1])
    windows = [(1, ALONE)] if len(nights) < 2 else [(1, ALONE), (min(len(nights), WINDOW), TOGETHER)]
    tests: list[list[NightTest]] = [[] for _ in range(rows + (rows > 1))]
    for width, level in windows:
        earlier, later = _filled(np.stack(reference), np.stack(nights[-width:]), scale)
        paired = np.flatnonzero(np.isfinite(earlier[0]).any(axis=1)).tolist()
        parts = [*([row] for row in paired), *([paired] if len(paired) > 1 else [])]
        for part in parts:
            before, after = (_of_part(side, part, units) for side in (earlier, later))
            # Half of the level is for all rows together, in which most of what changes outside of the code shows.
            share = 1.0 if len(paired) == 1 else 0.5 if len(part) > 1 else 0.5 / len(paired)
            if before.shape[1]:
                place = rows if len(part) > 1 else part[0]
                tests[place].append(replace(_test(before, after, level * share / metrics), margin=margin))
    return tests


def _of_part(side: Floats, part: Sequence[int], units: Units) -> Floats:
    """Return sweeps x units of the mean of rows, without units that have no score."""
    table = differences_by_unit(side[:, part].mean(axis=1), units)
    return np.asarray(table[:, np.isfinite(table).all(axis=0)])


def _filled(earlier: Floats, later: Floats, scale: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """Fill in missing scores so that they count against a fall: low scores before and high ones now."""
    if np.isfinite(earlier).all() and np.isfinite(later).all():
        return earlier, later
    both = np.concatenate([earlier, later])
    has_any = np.isfinite(earlier).any(axis=0)  # others are new, or changed since
    low, high = (
        np.where(has_any, end(np.where(np.isfinite(both), both, fill), axis=0), np.nan)
        for end, fill in ((np.min, np.inf), (np.max, -np.inf))
    )
    if scale is not None:
        low, high = (np.where(has_any, end, np.nan) for end in scale)
    sides = (np.where(np.isfinite(side), side, fill) for side, fill in ((earlier, low), (later, high)))
    earlier, later = (np.where(has_any, side, np.nan) for side in sides)
    return earlier, later


def _test(before: Floats, after: Floats, level: float) -> NightTest:
    p = permuted(before, after)
    gains = after.mean(axis=0) - before.mean(axis=0)
    low = float(intervals(gains[None], ONE_SIDED)[0, 0])
    # There is no interval if all gains are equal.
    low = float(gains.mean()) if math.isnan(low) and len(gains) > 1 else low
    tonight, together = float(after[-1].mean() - before.mean()), float(after.mean() - before.mean())
    test = NightTest(len(after), p, level, float(before.mean()), float(after.mean()), len(gains), low)
    return replace(test, has_recovered=together < 0 and tonight > together / 2)


def permuted(before: Floats, after: Floats) -> float:
    """Return the probability that the later ones of exchangeable sweeps are so low by chance.

    Args:
        before: Sweeps x cases.
        after: Later sweeps of the same cases.

    Returns:
        The one-sided p of the permutations within cases: in each case, any of the sweeps could have been the later
        ones.
    """
    both = np.concatenate([before, after])
    both = both[:, (both != both[0]).any(axis=0)]
    if not both.shape[1]:
        return 1.0
    places = np.array(list(combinations(range(len(both)), len(after))))
    sums = both[places].sum(axis=1).T  # cases x choices of the later sweeps
    observed = float(both[len(before) :].sum())
    center, spread = float(sums.mean(axis=1).sum()), math.sqrt(float(sums.var(axis=1).sum()))
    target = observed + _step(both) / 2
    distance = (target - center) / spread
    if distance > -_LIMIT:
        return NORMAL.cdf(distance)
    return _tail(sums - sums.mean(axis=1, keepdims=True), target - center, _step(both))


def _step(scores: Floats) -> float:
    """Return the smallest difference between sums of scores, or 0 without one: half a step makes p exact."""
    for repeats in range(1, _FINEST + 1):
        if np.abs(scores * repeats - np.round(scores * repeats)).max() < 1e-9:
            return 1.0 / repeats
    return 0.0


def _tail(values: Floats, target: float, step: float) -> float:
    """Return the probability that a sum of choices, one of each row, is at most a target below its mean."""
    lowest = float(values.min(axis=1).sum())
    # No finite tilt leads to the lowest possible sum, whose probability is known exactly.
    if target <= lowest + 1e-12 * abs(lowest):
        return math.exp(float(np.log((values == values.min(axis=1, keepdims=True)).mean(axis=1)).sum()))
    tilt, low, high = -1.0 / float(np.abs(values).max()), -math.inf, 0.0
    for _ in range(100):  # Newton, and bisection where that leaves the bracket
        cumulant, slope, curve = _cumulants(values, tilt)
        if slope > target:
            high = tilt
        else:
            low = tilt
        if abs(slope - target) <= 1e-9 * abs(target):
            break
        following = tilt - (slope - target) / curve if curve > 0 else -math.inf
        if not low < following < high:
            following = 2 * tilt if low == -math.inf else (low + high) / 2
        tilt = following
    root = -math.sqrt(max(2 * (tilt * target - cumulant), 1e-300))
    slope_of_tail = (2 * math.sinh(tilt * step / 2) / step if step else tilt) * math.sqrt(max(curve, 1e-300))
    density = math.exp(-root * root / 2) / math.sqrt(2 * math.pi)
    return min(1.0, max(0.0, NORMAL.cdf(root) + density * (1 / root - 1 / slope_of_tail)))


def _cumulants(values: Floats, tilt: float) -> tuple[float, float, float]:
    """Return the cumulant generating function of the sum and its first two derivatives."""
    powers = tilt * values
    shift = powers.max(axis=1, keepdims=True)
    # Shifted by the largest exponent, so that `exp` does not overflow.
    weights = np.exp(powers - shift)
    totals = weights.sum(axis=1, keepdims=True)
    means = (weights * values).sum(axis=1) / totals[:, 0]
    curve = (weights * values**2).sum(axis=1) / totals[:, 0] - means**2
    cumulant = float((np.log(totals[:, 0] / values.shape[1]) + shift[:, 0]).sum())
    return cumulant, float(means.sum()), float(curve.sum())
