"""Tests of one night after another against a fixed reference, so that all nights together are seldom wrong.

A test at 5% a night calls some night of twenty worse in one series of four although nothing was changed. And a
baseline that moves every night hides a slow fall, because each night differs little from the one before. So each night
is tested twice against a reference that does not move, once alone and once with the nights before it, at a level that
allows for any 20 nights in a row. No number of nights has to be known in advance, and nights may be missing.

Without a change, sweeps of the same cases are exchangeable within each case: each could have been the reference. The
tests permute within cases, so they are exact for skewed scores too (Fisher; tails by Lugannani & Rice 1980).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np

from wtb.analysis.statistics.intervals import NORMAL, ONE_SIDED, Floats, intervals
from wtb.analysis.statistics.units import Units, differences_by_unit
from wtb.core.classes.frozen import frozen

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
        p: One-sided, of a fall, not corrected.
        level: Below which p counts as a fall.
        before: The mean of the reference over the cases that were tested.
        after: The mean of the nights.
        units: How many cases, or clusters, were tested.
        low: From where on the true gain lies, 95 times of 100.
        margin: The loss that would matter; None if any does.
        has_recovered: Whether tonight fell less than half as far as the nights together.
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
        """Return whether p is below its level, it lasts, and the loss is not shown to be within the margin."""
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
        nights: Later nights alike, the oldest first; tonight is the last one.
        metrics: How many metrics decide and share the level.
        units: The cluster of each case; None if each is its own.
        scale: What no score can pass; None if nothing is known.
        margin: The loss that would matter; None if any does.

    Returns:
        The tests of each row, and after them those of all rows together, if there are several.
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
    """Fill in what is missing so that it speaks against a fall: low scores before and high ones now."""
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
    low = float(gains.mean()) if math.isnan(low) and len(gains) > 1 else low
    tonight, together = float(after[-1].mean() - before.mean()), float(after.mean() - before.mean())
    test = NightTest(len(after), p, level, float(before.mean()), float(after.mean()), len(gains), low)
    return replace(test, has_recovered=together < 0 and tonight > together / 2)


def permuted(before: Floats, after: Floats) -> float:
    """Return how often chance makes the later of some sweeps so low, if all of them are alike.

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
    """Return by how much sums of scores differ at least, 0 if nothing limits it: half a step makes p exact."""
    for repeats in range(1, _FINEST + 1):
        if np.abs(scores * repeats - np.round(scores * repeats)).max() < 1e-9:
            return 1.0 / repeats
    return 0.0


def _tail(values: Floats, target: float, step: float) -> float:
    """Return the probability that a sum of choices, one of each row, is at most as low as a target below its mean."""
    lowest = float(values.min(axis=1).sum())
    if target <= lowest + 1e-12 * abs(lowest):
        return math.exp(float(np.log((values == values.min(axis=1, keepdims=True)).mean(axis=1)).sum()))
    tilt, low, high = -1.0 / float(np.abs(values).max()), -math.inf, 0.0
    for _ in range(100):  # Newton, and bisection where that leaves the bracket
        value, slope, curve = _cumulants(values, tilt)
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
    root = -math.sqrt(max(2 * (tilt * target - value), 1e-300))
    slope_of_tail = (2 * math.sinh(tilt * step / 2) / step if step else tilt) * math.sqrt(max(curve, 1e-300))
    density = math.exp(-root * root / 2) / math.sqrt(2 * math.pi)
    return min(1.0, max(0.0, NORMAL.cdf(root) + density * (1 / root - 1 / slope_of_tail)))


def _cumulants(values: Floats, tilt: float) -> tuple[float, float, float]:
    """Return the cumulant generating function of the sum and its first two derivatives."""
    powers = tilt * values
    shift = powers.max(axis=1, keepdims=True)
    weights = np.exp(powers - shift)
    totals = weights.sum(axis=1, keepdims=True)
    means = (weights * values).sum(axis=1) / totals[:, 0]
    curve = (weights * values**2).sum(axis=1) / totals[:, 0] - means**2
    value = float((np.log(totals[:, 0] / values.shape[1]) + shift[:, 0]).sum())
    return value, float(means.sum()), float(curve.sum())
