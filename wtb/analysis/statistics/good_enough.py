"""Standings: the rows within a margin of the best, when the best is chosen from the same data.

A row is good enough if it is shown to be behind no other row by more than the margin: the true best is one of them, so
choosing it afterwards costs nothing (comparisons with the best; Hsu 1981). The bounds of all rows behind the same row
hold simultaneously (Bonferroni), without rows that are clearly further behind than the margin, which no bound can show
to be good enough (Romano, Shaikh & Wolf 2014). A row is not good enough if every row that could be the best is shown to
be ahead by more. The verdict is read off the interval, so the two cannot contradict each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.best import rank
from wtb.analysis.statistics.claims import SIGNIFICANT, Claim, Pairs, Side
from wtb.analysis.statistics.comparing import ELIGIBLE, Design
from wtb.analysis.statistics.intervals import (
    NORMAL,
    ROUNDING,
    Floats,
    Interval,
    Units,
    by_unit,
    differences_by_unit,
    skewness,
    tail_quantile,
    upper_ends,
)
from wtb.analysis.statistics.paired import cleaned, interval_times, means, subtract, unit_of
from wtb.analysis.statistics.power import PAIRS
from wtb.core.frozen import frozen

_STEPS, _LAST = 14, 2  # of a bisection over 18 decades, and of interpolation between its ends: to 1e-8 of the scale
_SAME = 1e-9  # of the span: values that differ by less are the same
_FEW_VALUES = 64  # distinct ones, which are counted instead of listed
_BLOCK = 1 << 20  # entries that are bounded together


def upper_bounds(values: Floats, worst: Floats, z: Floats) -> Floats:
    """Return an upper bound of the mean of each row.

    Args:
        values: Rows x units, NaN where one is missing.
        worst: The largest value that each row could have.
        z: The normal quantile of the level of each row; 1.64 gives 95%.

    Returns:
        One bound a row; NaN without values.
    """
    bounds = np.full(len(values), np.nan)
    step = max(1, _BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        bounds[rows] = _bounded(values[rows], np.asarray(worst)[rows], np.asarray(z)[rows])
    return bounds


def _bounded(values: Floats, worst: Floats, z: Floats) -> Floats:
    present = np.isfinite(values)
    top = np.maximum(worst, np.where(present, values, -np.inf).max(axis=1, initial=-np.inf))
    distances, counts = _counted(np.where(present, top[:, None] - np.where(present, values, 0.0), np.nan))
    counts[:, 0] += 1  # the one more value, at the worst end
    span, size = distances.max(axis=1, initial=0.0), counts.sum(axis=1)
    varies = (size > 1) & (span > 0)
    safe = np.where(varies, span, 1.0)
    scaled = distances / safe[:, None]
    low, high = np.full(len(values), -12 * np.log(10)), np.full(len(values), 6 * np.log(10))
    above, under = np.full(len(values), np.inf), np.full(len(values), -np.inf)  # quantiles at both ends, less z
    mean = np.zeros(len(values))
    for step in range(_STEPS + _LAST):
        share = 0.5 if step < _STEPS else _where_zero(above, under)
        middle = low + (high - low) * share
        mean, quantile = _tilted(scaled, counts, size, np.exp(middle))
        is_beyond = quantile > z
        low, high = np.where(is_beyond, middle, low), np.where(is_beyond, high, middle)
        above, under = np.where(is_beyond, quantile - z, above), np.where(is_beyond, under, quantile - z)
    return np.where(varies, top - mean * safe, np.where(size > 1, top, np.nan))


def _where_zero(above: Floats, under: Floats) -> Floats:
    """Return where a line from `above` to `under` crosses 0; the middle if either is not finite."""
    is_known = np.isfinite(above) & np.isfinite(under)
    rise = np.where(is_known, above, 0.5)
    return np.asarray(rise / (rise - np.where(is_known, under, -0.5)))


def _counted(distances: Floats) -> tuple[Floats, Floats]:
    """Return values as columns with their counts in each row; the first column is 0."""
    distinct = np.unique(distances[np.isfinite(distances)])
    if distinct.size <= _FEW_VALUES:
        columns = np.concatenate([[0.0], distinct])
        counts = np.stack(
            [np.zeros(len(distances)), *((distances == distance).sum(axis=1) for distance in distinct)], axis=1
        )
        return np.broadcast_to(columns, counts.shape), counts
    counts = np.concatenate([np.zeros((len(distances), 1)), np.isfinite(distances)], axis=1)
    return np.concatenate([np.zeros((len(distances), 1)), np.nan_to_num(distances)], axis=1), counts.astype(np.float64)


def _tilted(distances: Floats, counts: Floats, size: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Return the mean, below the top, whose saddlepoint is at `shift`, and the normal quantile of its probability."""
    weight = 1 / (shift[:, None] + distances)
    total = (counts * weight).sum(axis=1)
    mean = (counts * weight * distances).sum(axis=1) / total
    root = 2 * (size * np.log(total / size) - (counts * np.log(weight)).sum(axis=1))
    w = np.sqrt(np.maximum(root, 1e-300))
    moved = (mean[:, None] - distances) * weight * (size / total)[:, None]
    u = total / size * np.sqrt((counts * moved**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        quantile = w + np.log(u / w) / w
    return mean, np.where(w > _SAME, quantile, -np.inf)


Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]
RIVALS = 16  # of a row, whose bounds are computed: those that are the furthest ahead of it
_EXCLUDED = 0.1  # of the level: how often a row may wrongly count as clearly beyond the margin
# Units. Without a scale, fewer show no row to be good enough: 28 show no loss in one case of ten in 5% of sweeps.
_NEEDED, NEEDED_WITHOUT_SCALE = 2, 29
_OF_UNEVEN = 8.0  # times their range: how large a gap may be that no unit shows if gaps are uneven and have no scale
_UNEVEN = 0.2  # skewness of gaps over the root of the units: a few units lose much more than the others


@frozen(slots=True)
class Standing:
    """The distance of a row from the best.

    Attributes:
        within: Whether it is within the margin of the best; None if neither is shown yet.
        behind: The row is behind the best by at least the first and at most the second number, each right in 95% of
            sweeps for all rows together. None if unknown.
        hangs_on: How many missing cells would have to be known if the measured scores show whether it is within the
            margin; else None.
    """

    within: bool | None = None
    behind: Interval | None = None
    hangs_on: int | None = None


def standings(
    scores: Floats, design: Design, margin: float, *, could_be_best: Sequence[int], compared_rows: Sequence[int]
) -> list[Standing]:
    """Return how far every row is behind the best.

    Args:
        scores: Rows x cases, NaN where missing.
        design: How rows are compared. Only means of scores have bounds.
        margin: The loss that does not matter.
        could_be_best: The rows that could be the best of all.
        compared_rows: The rows among which the best is.
    """
    if design.figure is not None or design.by != "mean":
        return [Standing()] * len(scores)
    if (unit := unit_of(scores)) != 1.0:
        scaled = replace(design, ends=interval_times(design.ends, 1 / unit))
        by_row = standings(
            scores / unit, scaled, margin / unit, could_be_best=could_be_best, compared_rows=compared_rows
        )
        return [replace(standing, behind=interval_times(standing.behind, unit)) for standing in by_row]
    by_row = [Standing()] * len(scores)
    scores = cleaned(scores)
    present = np.isfinite(scores)
    ranked, columns, units = _complete(present, design, compared_rows)
    span, has_scale = _span(scores, design), math.isfinite(design.width)
    race = _Race(design.sign * scores[ranked][:, columns], units, margin, span, has_scale=has_scale)
    if not race.shows_anything:
        return by_row
    best = [ranked.index(row) for row in could_be_best if row in ranked]
    if len(best) < len(could_be_best):  # the best of all is not one of these
        best = race.could_be_best(design.seed)
    level = design.level
    most_behind, least_behind = race.most_behind(level), race.least_behind(level / 2, best)
    # A claim that was shown before is not new.
    if level < (whole := SIGNIFICANT / design.metrics) and design.known_standings:
        is_known = np.array([[(row, within) in design.known_standings for within in (True, False)] for row in ranked])
        most_behind = np.where(is_known[:, 0], race.most_behind(whole), most_behind)
        least_behind = np.where(is_known[:, 1], race.least_behind(whole / 2, best), least_behind)
    for place, row in enumerate(ranked):
        high = min(max(0.0, float(most_behind[place])), design.width)
        by_row[row] = standing_of(min(max(0.0, float(least_behind[place])), high), high, margin)
    pairs = design.pairs(scores)
    if pairs is not None:
        worst = np.array([span * _largest_weight(design.units)])
        quantile = max(float(race.z_of(level).max()), race.z_of_least(level / 2))

        def bound(gaps: Floats) -> float:
            each = by_unit(gaps[None], design.units)
            return float(_upper(each[:, np.isfinite(each[0])], worst, np.array([quantile]), has_scale=has_scale)[0])

        scored_rows = [row for row in compared_rows if present[row].any()]
        candidates = [ranked[place] for place in best]
        for row in ranked:
            rivals = scored_rows if by_row[row].within else candidates
            by_row[row] = at_worst(pairs, row, rivals, by_row[row], margin, bound, lower=design.sign < 0)
    return [standing if race.can_show_yes or standing.within is False else Standing() for standing in by_row]


def lacks_scale(scores: Floats, design: Design, compared_rows: Sequence[int]) -> bool:
    """Return whether no row can be shown to be good enough because there is no scale and there are too few cases."""
    if design.figure is not None or design.by != "mean" or math.isfinite(design.width):
        return False
    _, columns, units = _complete(np.isfinite(scores), design, compared_rows)
    return (columns.size if units is None else np.unique(units).size) < NEEDED_WITHOUT_SCALE


def _complete(present: Mask, design: Design, compared_rows: Sequence[int]) -> tuple[list[int], Numbers, Units]:
    """Return the ranked rows, the cases that all of them have, and the units of these."""
    ranked = [row for row in compared_rows if present[row].any() and present[row].mean() >= ELIGIBLE]
    columns = np.flatnonzero(present[ranked].all(axis=0) & bool(ranked))
    return ranked, columns, design.of_cases(columns.tolist()).units if columns.size else None


def standing_of(low: float, high: float, margin: float) -> Standing:
    """Return the standing of a row that is behind the best by at least `low` and at most `high`."""
    within = True if not is_more(high, margin) else False if is_more(low, margin) else None
    return Standing(within, (low, high))


def is_more(behind: float, margin: float) -> bool:
    """Return whether a row is behind by more than the margin, beyond rounding."""
    return behind > margin * (1 + ROUNDING)


def at_worst(
    pairs: Pairs,
    row: int,
    rivals: Sequence[int],
    standing: Standing,
    margin: float,
    bound: Callable[[Floats], float],
    *,
    lower: bool = False,
) -> Standing:
    """Return a standing whose interval allows for missing cells at their worst for its claim.

    Args:
        pairs: The scores with the missing cells.
        row: The number of the row.
        rivals: Rows that it must not be behind, if it is within the margin; else those that could be the best.
        standing: The standing by the measured scores.
        margin: The loss that does not matter.
        bound: Returns an upper bound of the mean of differences.
        lower: True if lower scores are better.
    """
    if standing.within is None or standing.behind is None:
        return standing
    side: Side = -1 if lower else 1
    low, high = standing.behind
    count = 0
    for rival in rivals:
        missing = pairs.count_missing(row, rival) if rival != row else 0
        if not missing:
            continue
        claim = Claim(row, rival, side) if standing.within else Claim(rival, row, side)
        every, excess = pairs.fills(claim)
        # What the second row of the claim is ahead of the first at most; of no interval nothing is known.
        unseen = bound(-side * excess.differences)
        end = max(-side * every.estimate, math.inf if math.isnan(unseen) else unseen)
        is_open = is_more(end, margin) if standing.within else not is_more(-end, margin)
        count += missing if is_open else 0
        low, high = (low, max(high, end)) if standing.within else (max(0.0, min(low, -end)), high)
    changed = standing_of(low, high, margin)
    return replace(changed, hangs_on=count) if changed.within != standing.within else changed


def _span(scores: Floats, design: Design) -> float:
    """Return the largest possible difference of two scores; without a scale, the largest within a case."""
    if math.isfinite(design.width):
        return design.width
    ends = np.nanmax(scores, axis=0, initial=-np.inf) - np.nanmin(scores, axis=0, initial=np.inf)
    return float(np.max(ends[np.isfinite(ends)], initial=0.0))


def _upper(gaps: Floats, worst: Floats, z: Floats, *, has_scale: bool) -> Floats:
    """Return an upper bound of the mean of each row of complete gaps.

    Without a scale, nothing limits an unseen gap. Then the range of the gaps replaces the scale, or eight times it if a
    few of them are much larger. Few units show less of it. The interval for means has to agree.
    """
    if has_scale:
        return upper_bounds(gaps, worst, z)
    ranges = np.ptp(gaps, axis=1) if gaps.shape[1] else np.zeros(len(gaps))
    is_uneven = np.nan_to_num(skewness(gaps, signed=True)) > _UNEVEN
    of_even = max(1.0, NEEDED_WITHOUT_SCALE / max(1, gaps.shape[1]))
    unseen = np.where(is_uneven, _OF_UNEVEN, of_even) * np.where(ranges > 0, ranges, worst)
    return np.fmax(upper_bounds(gaps, unseen, z), upper_ends(gaps, z))


class _Race:
    """Rows of complete scores, higher is better; a gap is by how much one row is behind another."""

    def __init__(self, scores: Floats, units: Units, margin: float, span: float, *, has_scale: bool) -> None:
        self.scores, self.units, self.margin, self.has_scale = scores, units, margin, has_scale
        self.worst = span * _largest_weight(units)
        self.rows = len(scores)
        each = by_unit(scores, units)
        self.size = each.shape[1]
        averages = means(scores)
        centred = each - each.mean(axis=1, keepdims=True) if self.size else each
        self.gaps = averages[None, :] - averages[:, None]  # row, rival
        squares = (centred**2).sum(axis=1)
        spread = squares[:, None] + squares[None, :] - 2 * centred @ centred.T
        self.errors = np.sqrt(np.maximum(spread, 0.0) / max(1, self.size - 1) / max(1, self.size))

    @property
    def shows_anything(self) -> bool:
        """True if there are enough units, and a bound for unseen differences."""
        return self.size >= (_NEEDED if self.has_scale else PAIRS) and (self.worst > 0 or self.rows == 1)

    @property
    def can_show_yes(self) -> bool:
        """True if there are enough units to show that a row is good enough."""
        return self.has_scale or self.size >= NEEDED_WITHOUT_SCALE

    def could_be_best(self, seed: int) -> list[int]:
        """Return the rows that could be the best of these."""
        if self.size < PAIRS:
            return list(range(self.rows))
        return np.flatnonzero(rank(differences_by_unit(self.scores, self.units), seed).candidates).tolist()

    def z_of(self, level: float) -> Floats:
        """Return the quantile of the bounds of rows behind each rival."""
        z = tail_quantile(_EXCLUDED * level / max(1, self.rows - 1))
        # At least one difference, which a row without variation could have.
        is_beyond = self.gaps - z * np.maximum(self.errors, self.worst / self.size) > self.margin
        counted = np.maximum(1, self.rows - 1 - is_beyond.sum(axis=0))
        return np.array([tail_quantile((1 - _EXCLUDED) * level / count) for count in counted.tolist()])

    def z_of_least(self, level: float) -> float:
        """Return the quantile of the bounds of the best row's lead over others."""
        return tail_quantile(level / max(1, self.rows - 1))

    def most_behind(self, level: float) -> Floats:
        """Return an upper bound of how far each row is behind any other."""
        return self._bounds(self.z_of(level), range(self.rows), 1)

    def least_behind(self, level: float, could_be_best: Sequence[int]) -> Floats:
        """Return a lower bound of how far each row is behind the best: behind the candidate that it is closest to."""
        if not could_be_best:
            return np.zeros(self.rows)
        least = -self._bounds(np.full(self.rows, self.z_of_least(level)), could_be_best, -1)
        least[list(could_be_best)] = 0.0
        return least

    def _bounds(self, z: Floats, rivals: Sequence[int], side: Side) -> Floats:
        """Return the largest upper bound of the gaps (side is 1), or of the leads (-1), over the rivals."""
        about = side * self.gaps + self._about(z)
        rival_bounds = np.full_like(about, -np.inf)
        rival_bounds[:, list(rivals)] = about[:, list(rivals)]
        np.fill_diagonal(rival_bounds, -np.inf)
        # An exact bound takes a bisection for each pair; only the rivals that a normal bound puts furthest ahead can
        # decide.
        count = min(RIVALS, self.rows - 1, len(rivals))
        if count < 1:
            return np.zeros(self.rows)
        nearest = np.argpartition(-rival_bounds, count - 1, axis=1)[:, :count]
        row, place = np.nonzero(np.isfinite(np.take_along_axis(rival_bounds, nearest, axis=1)))
        rival = nearest[row, place]
        bounds = np.full((self.rows, count), -np.inf)
        for start in range(0, len(row), step := max(1, (1 << 21) // max(1, self.scores.shape[1]))):
            some = slice(start, start + step)
            gaps = by_unit(side * subtract(self.scores[rival[some]], self.scores[row[some]]), self.units)
            worst = np.full(len(gaps), self.worst)
            bounds[row[some], place[some]] = _upper(gaps, worst, z[rival[some]], has_scale=self.has_scale)
        return np.asarray(bounds.max(axis=1))

    def _about(self, z: Floats) -> Floats:
        """Return approximately how far bounds are above the gaps: by the normal distribution, and without variation."""
        chance = np.array([max(NORMAL.cdf(-quantile), sys.float_info.min) for quantile in z.tolist()])
        return np.asarray(np.hypot(z * self.errors, self.worst * -np.log(chance) / self.size))


def _largest_weight(units: Units) -> float:
    """Return how many times as much as the average unit the largest one counts."""
    if units is None:
        return 1.0
    counts = np.bincount(units)
    return float(counts.max() * np.count_nonzero(counts) / counts.sum())
