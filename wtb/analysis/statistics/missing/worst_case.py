"""Whether a claim that one row scores higher than another survives the missing cells of both at their worst.

A row that crashes where its answer would be wrong looks better than it is. So a claim has to hold in two ways:

- With every missing cell at its worst for the claim, the difference keeps its sign.
- With the excess of missing cells at its worst, the paired test, one-sided on the side of the claim, still has p < 5%.

The excess is what one row lacks more than the other for the same reason (compare Lee 2009, who trims as much). What
both lack equally often is as likely to hide wrong answers of the one as of the other. Where one row alone lacks cells,
all of them are excess. The worst score is the end of the scale, else the worst score of the table; of figures over all
cells of a row it is a wrong answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.figures.row_figures import FigureRows, RowCells, contributions, failed_score
from wtb.analysis.statistics.intervals import Floats, Interval
from wtb.analysis.statistics.missing.missing_cells import Counts, MissingCells
from wtb.analysis.statistics.paired import Compare, chance, means, subtract
from wtb.analysis.statistics.shift import shifts
from wtb.analysis.statistics.units import Units, differences_by_unit
from wtb.core.classes.frozen import frozen
from wtb.core.scoring.figures import Figure

Side = Literal[1, -1]


class Claim(NamedTuple):
    """That one row of a table scores higher (`side` is 1) or lower (-1) than another one, by their numbers."""

    first: int
    second: int
    side: Side


@frozen
class Fill:
    """Two rows with missing cells filled in.

    Attributes:
        differences: By case, the first less the second; NaN where one of them still has no score.
        swaps: What tests of a figure over all cells of a row are of, in place of the differences.
        estimate: The difference of the two rows.
    """

    differences: Floats
    swaps: Floats | None
    estimate: float


@frozen
class Pairs:
    """A table of scores of which two rows at a time are compared.

    Attributes:
        scores: rows x cases, repeats averaged.
        missing: The missing cells.
        ends: The scale. An end that is None or infinite is that of the scores.
        compare: By the mean of the differences, or by their median.
        units: The cluster of each case; None where each is one of its own.
        figure: The cells of the rows, where scores are contributions to a figure over all cells of a row.
        seed: Of the random signs.
    """

    scores: Floats
    missing: MissingCells
    ends: Interval | None = None
    compare: Compare = "mean"
    units: Units = None
    figure: FigureRows | None = None
    seed: int = 0

    def count_missing(self, first: int, second: int) -> int:
        """Return how many missing cells a claim about two rows rests on: those of cases that one of them has."""
        total = self.missing.total[[first, second]]
        return int(total[:, self._comparable(first, second)].sum())

    def p_at_worst(self, claims: Sequence[Claim]) -> Floats:
        """Return the one-sided p of claims about differences with missing cells at their worst.

        It is 1 where a difference does not keep its sign, and where there is no test.
        """
        p = np.ones(len(claims))
        numbers, tested = [], []
        for number, claim in enumerate(claims):
            every, excess = self.fills(claim)
            if claim.side * every.estimate > 0 and claim.side * excess.estimate > 0:
                numbers.append(number)
                tested.append(excess.differences if excess.swaps is None else excess.swaps)
        if tested:
            two_sided = chance(differences_by_unit(np.stack(tested), self.units), self.seed, self.compare)
            p[numbers] = np.where(np.isnan(two_sided), 1.0, two_sided / 2)
        return p

    def fills(self, claim: Claim) -> tuple[Fill, Fill]:
        """Return the rows of a claim with all of their missing cells at the worst for it, and with the excess."""
        comparable, rows, side = self._comparable(claim.first, claim.second), [claim.first, claim.second], claim.side
        reasons = [np.where(comparable, counts[rows], 0) for counts in self.missing.reasons.values()]
        every = np.sum([np.zeros((2, self.scores.shape[1]), np.int32), *reasons], axis=0)
        excess = np.zeros_like(every)
        for counts in reasons:
            more = int(counts[0].sum()) - int(counts[1].sum())
            row = 0 if more > 0 else 1
            # A cell costs the claim most where the other row is furthest ahead of the worst score.
            cost = (side if row == 0 else -side) * self.scores[rows[1 - row]]
            excess[row] += _costliest(counts[row], cost, abs(more))
        return self._filled(rows, every, side), self._filled(rows, excess, side)

    def mean_range(self, row: int) -> Interval:
        """Return between what the mean of a row, or its figure, would be with its missing cells at either end."""
        added = np.stack([self.missing.total[row]] * 2)
        if self.figure is not None:
            both = self.figure.part([row, row])
            filled = _filled_cells(both, self._truth, added, 1)
            figures = [float(contributions(both.figure, *cells).mean()) for cells in filled]
            return min(figures), max(figures)
        low, high = self.scale
        ends = [means(self._with([row, row], added, (end, end))[:1])[0] for end in (low, high)]
        return float(ends[0]), float(ends[1])

    def _comparable(self, first: int, second: int) -> NDArray[np.bool_]:
        """Return the cases that one of two rows has: of a case that neither has nothing is claimed."""
        return np.asarray(np.isfinite(self.scores[[first, second]]).any(axis=0))

    @property
    def scale(self) -> Interval:
        """The lowest and the highest score that a missing cell could have."""
        low, high = self.ends or (-math.inf, math.inf)
        if not math.isfinite(low):
            low = float(np.nanmin(self.scores))
        return low, high if math.isfinite(high) else float(np.nanmax(self.scores))

    def _filled(self, rows: list[int], added: Counts, side: Side) -> Fill:
        if self.figure is not None:
            return self._filled_figure(self.figure.part(rows), added, side)
        low, high = self.scale
        filled = self._with(rows, added, (low, high) if side > 0 else (high, low))
        differences = subtract(filled[:1], filled[1:])
        middle = shifts(differences)[0] if self.compare == "median" else means(differences)
        return Fill(differences[0], None, float(middle[0]))

    def _filled_figure(self, both: FigureRows, added: Counts, side: Side) -> Fill:
        filled = _filled_cells(both, self._truth, added, side)
        swaps = replace(both, rows=filled).swaps(0, [1])[0]
        figures = [float(contributions(both.figure, *row).mean()) for row in filled]
        return Fill(swaps, swaps, figures[0] - figures[1])

    @cached_property
    def _truth(self) -> Floats:
        """What is expected of each case, by any row; NaN where no cell says it."""
        truth = np.full(self.scores.shape[1], np.nan)
        for row in self.figure.rows if self.figure is not None else ():
            truth[row.column] = row.truth
        return truth

    def _with(self, rows: list[int], added: Counts, scores: Interval) -> Floats:
        """Return two rows with missing cells filled in. scores: what each of them counts as, by row."""
        behind = np.where(np.isfinite(self.scores[rows]), self.missing.behind[rows], 0)
        count = behind + added
        sums = np.nan_to_num(self.scores[rows]) * behind + added * np.array(scores)[:, None]
        return np.asarray(np.where(count > 0, sums / np.maximum(count, 1), np.nan))


def _costliest(counts: Counts, cost: Floats, limit: int) -> Counts:
    """Return how many missing cells of each case to fill in: `limit` in all, those that cost the claim most first."""
    order = np.argsort(-np.where(np.isfinite(cost), cost, -np.inf), kind="stable")
    ordered = counts[order]
    before = np.cumsum(ordered) - ordered
    filled = np.zeros_like(counts)
    filled[order] = np.clip(limit - before, 0, ordered)
    return filled


def _filled_cells(both: FigureRows, truth: Floats, added: Counts, side: Side) -> list[RowCells]:
    """Fill in wrong answers in the row that is claimed to be better, and right ones in the other.

    Of a case of which no cell says what is expected nothing is filled in.
    """
    is_error = both.figure == "calibration_error"  # which is higher where answers are worse
    filled = []
    for place, row in enumerate(both.rows):
        columns = np.repeat(np.arange(both.columns), np.where(np.isfinite(truth), added[place], 0))
        expected = truth[columns].astype(np.int64)
        is_wrong = (place == 0) == ((side > 0) != is_error)
        answers = (failed_score if is_wrong else right_score)(both.figure, expected)
        filled.append(
            RowCells(
                np.concatenate([row.truth, expected]),
                np.concatenate([row.observed, answers]),
                np.concatenate([row.column, columns]),
            )
        )
    return filled


def right_score(figure: Figure, truth: NDArray[np.signedinteger]) -> Floats:
    """Return what right answers find: the class, or the score that is best for what is expected of them."""
    if figure == "auc":
        return np.where(truth == 1, np.inf, -np.inf)
    return np.asarray(truth, dtype=np.float64)
