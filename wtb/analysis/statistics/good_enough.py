"""Which rows are within a margin of the best, when the best is chosen from the same data.

A row is good enough if it is shown to be behind no other row by more than the margin: the true best is one of them,
whichever it is, so that nothing is lost by choosing it afterwards (comparisons with the best; Hsu 1981). The bounds of
all rows behind one and the same row hold together (Bonferroni), without those that are clearly further behind than the
margin, which no bound can show to be good enough (Romano, Shaikh & Wolf 2014). A row is not good enough if every row
that could be the best is shown to be ahead by more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wtb.analysis.statistics.bounded_means import upper_bounds
from wtb.analysis.statistics.comparing import ELIGIBLE, Design
from wtb.analysis.statistics.intervals import NORMAL, ROUNDING, Floats, Interval
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.missing.worst_case import Claim, Pairs, Side
from wtb.analysis.statistics.paired import cleaned, means, subtract
from wtb.analysis.statistics.units import Units, by_unit

RIVALS = 16  # of a row, whose bounds are computed: those that are the furthest ahead of it
_EXCLUDED = 0.1  # of the level: how often a row may wrongly count as clearly beyond the margin
_NEEDED = 2  # units


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a row is behind the best.

    Attributes:
        within: Whether it is within the margin of the best; None if that is not shown yet.
        behind: The row is behind the best by at least the first and at most the second number, each right in 95% of
            sweeps for all rows together. None if nothing is known.
        hangs_on: How many missing cells would have to be known, where it is within the margin by the scores that there
            are; else None.
    """

    within: bool | None = None
    behind: Interval | None = None
    hangs_on: int | None = None


def standings(
    scores: Floats, design: Design, margin: float, *, could_be_best: Sequence[int], over: Sequence[int]
) -> list[Standing]:
    """Return how far every row is behind the best.

    Args:
        scores: Rows x cases, NaN where missing.
        design: How rows are compared. Only means of scores have bounds.
        margin: The loss that does not matter.
        could_be_best: The rows that could be the best.
        over: The rows among which the best is.
    """
    found = [Standing()] * len(scores)
    if design.figure is not None or design.by != "mean":
        return found
    scores = cleaned(scores)
    present = np.isfinite(scores)
    ranked = [row for row in over if present[row].any() and present[row].mean() >= ELIGIBLE]
    kept = np.flatnonzero(present[ranked].all(axis=0) & bool(ranked))
    units = design.of_cases(kept.tolist()).units if kept.size else None
    if (kept.size if units is None else np.unique(units).size) < _NEEDED:
        return found
    race = _Race(design.sign * scores[ranked][:, kept], units, margin, _span(scores, design))
    level = design.level
    best = [ranked.index(row) for row in could_be_best if row in ranked]
    most, least = race.most_behind(level), race.least_behind(level / 2, best)
    if level < (whole := SIGNIFICANT / design.metrics):  # what was shown before is no new claim
        is_known = np.array([[(row, within) in design.known_standings for within in (True, False)] for row in ranked])
        most = np.where(is_known[:, 0], race.most_behind(whole), most) if is_known[:, 0].any() else most
        least = np.where(is_known[:, 1], race.least_behind(whole / 2, best), least) if is_known[:, 1].any() else least
    for place, row in enumerate(ranked):
        high = max(0.0, float(most[place]))
        low = min(max(0.0, float(least[place])), high)
        within = True if not is_more(high, margin) else False if is_more(low, margin) else None
        found[row] = Standing(within, (low, min(high, design.width)))
    return _with_missing(found, scores, design, margin, race.z_of(level))


def is_more(behind: float, margin: float) -> bool:
    """Return whether a row is behind by more than the margin, rounding allowed for."""
    return behind > margin * (1 + ROUNDING)


def _span(scores: Floats, design: Design) -> float:
    """How far two scores can be apart; without a scale, how far any two of a case are."""
    if np.isfinite(design.width):
        return design.width
    ends = np.nanmax(scores, axis=0, initial=-np.inf) - np.nanmin(scores, axis=0, initial=np.inf)
    return float(np.max(ends[np.isfinite(ends)], initial=0.0))


class _Race:
    """Rows of complete scores, higher is better; gaps are by how much one row is behind another."""

    def __init__(self, scores: Floats, units: Units, margin: float, span: float) -> None:
        self.scores, self.units, self.margin = scores, units, margin
        self.worst = span * _largest_weight(units)
        self.rows = len(scores)
        each = by_unit(scores, units)
        self.size = each.shape[1]
        averages = means(scores)
        centred = each - each.mean(axis=1, keepdims=True)
        self.gaps = averages[None, :] - averages[:, None]  # row, rival
        squares = (centred**2).sum(axis=1)
        spread = squares[:, None] + squares[None, :] - 2 * centred @ centred.T
        self.errors = np.sqrt(np.maximum(spread, 0.0) / max(1, self.size - 1) / self.size)

    def z_of(self, level: float) -> Floats:
        """Return the quantile of the bounds of rows behind each rival."""
        z = NORMAL.inv_cdf(1 - _EXCLUDED * level / max(1, self.rows - 1))
        # At least one difference, which a row without variation could have.
        is_beyond = self.gaps - z * np.maximum(self.errors, self.worst / self.size) > self.margin
        counted = np.maximum(1, self.rows - 1 - is_beyond.sum(axis=0))
        return np.array([NORMAL.inv_cdf(1 - (1 - _EXCLUDED) * level / count) for count in counted.tolist()])

    def most_behind(self, level: float) -> Floats:
        """Return what each row is behind any other at most."""
        z = self.z_of(level)
        return self._bounds(z, self.gaps + z[None, :] * self.errors, range(self.rows), 1)

    def least_behind(self, level: float, could_be_best: Sequence[int]) -> Floats:
        """Return what each row is behind the best at least: behind that candidate to which it is closest."""
        if not could_be_best:
            return np.zeros(self.rows)
        z = np.full(self.rows, NORMAL.inv_cdf(1 - level / max(1, self.rows - 1)))
        least = -self._bounds(z, -self.gaps + z[None, :] * self.errors, could_be_best, -1)
        least[list(could_be_best)] = 0.0
        return least

    def _bounds(self, z: Floats, about: Floats, rivals: Sequence[int], side: Side) -> Floats:
        """Return the largest upper bound of the gaps (side is 1), or of what is gained (-1), over the rivals."""
        others = np.full_like(about, -np.inf)
        others[:, list(rivals)] = about[:, list(rivals)]
        np.fill_diagonal(others, -np.inf)
        count = min(RIVALS, self.rows - 1, len(rivals))
        if count < 1:
            return np.zeros(self.rows)
        nearest = np.argpartition(-others, count - 1, axis=1)[:, :count]
        row, place = np.nonzero(np.isfinite(np.take_along_axis(others, nearest, axis=1)))
        rival = nearest[row, place]
        found = np.full((self.rows, count), -np.inf)
        for start in range(0, len(row), step := max(1, (1 << 21) // max(1, self.scores.shape[1]))):
            some = slice(start, start + step)
            gaps = side * subtract(self.scores[rival[some]], self.scores[row[some]])
            bounds = upper_bounds(by_unit(gaps, self.units), np.full(len(gaps), self.worst), z[rival[some]])
            found[row[some], place[some]] = bounds
        return np.asarray(found.max(axis=1))


def _largest_weight(units: Units) -> float:
    """How many times the average unit the largest one counts."""
    if units is None:
        return 1.0
    counts = np.bincount(units)
    return float(counts.max() * np.count_nonzero(counts) / counts.sum())


def _with_missing(found: list[Standing], scores: Floats, design: Design, margin: float, z: Floats) -> list[Standing]:
    """Take back that rows are within the margin where that does not survive missing cells at their worst."""
    pairs = design.pairs(scores)
    if pairs is None:
        return found
    others = np.flatnonzero(np.isfinite(scores).any(axis=1)).tolist()
    for row, standing in enumerate(found):
        if standing.within and (hanging := _hanging(pairs, row, others, design, margin, float(z.max()))):
            found[row] = replace(standing, within=None, hangs_on=hanging)
    return found


def _hanging(pairs: Pairs, row: int, others: Sequence[int], design: Design, margin: float, z: float) -> int:
    """Count the missing cells because of which a row is not shown to be within the margin of any other; 0 if none."""
    side: Literal[1, -1] = 1 if design.sign > 0 else -1
    count = 0
    worst = _span(pairs.scores, design) * _largest_weight(design.units)
    for other in others:
        missing = pairs.count_missing(row, other) if other != row else 0
        if not missing:
            continue
        every, excess = pairs.fills(Claim(row, other, side))
        behind = -side * every.estimate
        gaps = by_unit(-side * excess.differences[None], design.units)
        bound = float(upper_bounds(gaps, np.array([worst]), np.array([z]))[0])
        if is_more(behind, margin) or is_more(bound, margin):
            count += missing
    return count
