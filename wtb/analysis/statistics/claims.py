"""Claims about a table of rows, its missing cells by reason, and whether a claim survives them at their worst."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import ROUNDING, SKEWED, Floats, Interval, Units, differences_by_unit, skewness
from wtb.analysis.statistics.paired import ALPHA, SMALLEST_P, Compare, Tested, chance, holm, means, shifts, subtract
from wtb.analysis.statistics.row_figures import FigureRows, RowCells, contributions, failed_score
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Figure

Counts = NDArray[np.int32]  # rows x cases


@frozen
class MissingCells:
    """The missing cells of a table of scores, in which the repeats of a case are averaged.

    A cell is missing if a metric applies to its case and it has no score, because it failed and is left out, was lost
    to a provider, its evaluator failed, or it was skipped. Cells that can still get a score are not missing.

    Attributes:
        behind: How many repeats each score of the table rests on.
        reasons: Reason -> how many repeats are missing because of it.
    """

    behind: Counts
    reasons: Mapping[str, Counts]

    @classmethod
    def of(cls, scores: Floats, reason: str = "failed") -> MissingCells:
        """Return the missing cells of a table without repeats in which every score that is not finite is missing."""
        missing = ~np.isfinite(scores)
        return cls((~missing).astype(np.int32), {reason: missing.astype(np.int32)})

    @property
    def total(self) -> Counts:
        """Number of missing repeats, whatever the reason."""
        return np.asarray(sum(self.reasons.values(), np.zeros_like(self.behind)), dtype=np.int32)

    def part(self, rows: Sequence[int], selected: NDArray[np.bool_] | NDArray[np.int64] | None = None) -> MissingCells:
        """Return the missing cells of some rows, over the selected cases."""
        columns = slice(None) if selected is None else selected
        return self._changed(lambda counts: counts[rows][:, columns])

    def at(self, places: NDArray[np.int64], width: int) -> MissingCells:
        """Return the missing cells for a table in another order, in which case i has the column `places[i]`."""

        def moved(counts: Counts) -> Counts:
            table = np.zeros((len(counts), width), dtype=np.int32)
            table[:, places] = counts
            return table

        return self._changed(moved)

    def among(self, is_known: NDArray[np.bool_]) -> MissingCells:
        """Return the missing cells among known ones, such as those that have ended (rows x cases)."""
        return self._changed(lambda counts: np.where(is_known, counts, 0).astype(np.int32))

    def _changed(self, change: Callable[[Counts], Counts]) -> MissingCells:
        """Return the missing cells with the same change of all tables."""
        return MissingCells(change(self.behind), {reason: change(counts) for reason, counts in self.reasons.items()})


RULE_OF_THREE = 3.0
MUCH = 0.4  # of all differences, by the largest tenth of them; of normal ones it makes 0.26


def span_of(ends: Interval | None) -> float | None:
    """Return the largest possible difference of two scores; None if unlimited."""
    if ends is None or not math.isfinite(ends[1] - ends[0]) or ends[1] <= ends[0]:
        return None
    return ends[1] - ends[0]


def could_cancel(differences: Floats, span: float | None, *, side: int, units: int | None = None) -> bool:
    """Return whether a rare difference on the other side, which no case shows, could cancel all observed ones.

    Args:
        differences: Differences by case; NaN where missing.
        span: The largest possible difference of two scores; None if unlimited, which leaves the question open.
        side: 1 for the claim of a rise, -1 for that of a fall.
        units: How many units of evidence the cases are; by default each is one.
    """
    observed = differences[np.isfinite(differences)]
    count = observed.size if units is None else units
    if span is None or not count:
        return False
    largest = float((side * observed).max())
    return 0 < largest < span * RULE_OF_THREE / count * (1 - ROUNDING)


def one_in(cases: int) -> int:
    """Return n such that differences rarer than 1 in n cases may not occur in so many cases."""
    return max(1, math.ceil(cases / RULE_OF_THREE))


def p_of_unseen(differences: Floats, span: float, *, side: int) -> float:
    """Return the probability that no case shows a difference of the whole scale that would cancel the largest one."""
    observed = differences[np.isfinite(differences)]
    return float((1 - (side * observed).max() / span) ** observed.size)


def uneven(differences: Floats) -> list[int]:
    """Return rows of differences that a few cases dominate, so that intervals and p may be off.

    Args:
        differences: Rows x units; NaN where missing.
    """
    skewed = np.flatnonzero(skewness(differences) > SKEWED).tolist()
    return [row for row in skewed if _part_of_largest(differences[row]) >= MUCH]


def _part_of_largest(differences: Floats) -> float:
    """Return the share of all absolute differences that comes from the largest tenth of them."""
    sizes = np.sort(np.abs(differences[np.isfinite(differences)]))[::-1]
    return float(sizes[: math.ceil(sizes.size / 10)].sum() / sizes.sum())


Side = Literal[1, -1]


class Claim(NamedTuple):
    """The claim that row `first` scores higher (`side` is 1) or lower (-1) than row `second`."""

    first: int
    second: int
    side: Side


@frozen
class Fill:
    """Two rows with missing cells filled in.

    Attributes:
        differences: The first minus the second by case; NaN if either still has no score.
        swaps: The values that tests of a figure over all cells of a row use, instead of the differences.
        estimate: The difference of the two rows.
    """

    differences: Floats
    swaps: Floats | None
    estimate: float


@frozen
class Pairs:
    """A table of scores of which two rows at a time are compared.

    Attributes:
        scores: Rows x cases, averaged over repeats.
        missing: The missing cells.
        ends: The scale. An end that is None or infinite is that of the scores.
        compare: Compare by the mean of the differences, or by their median.
        units: The cluster of each case; None if each is its own.
        figure: The cells of the rows, if scores are contributions to a figure over all cells of a row.
        seed: The seed of the random signs.
    """

    scores: Floats
    missing: MissingCells
    ends: Interval | None = None
    compare: Compare = "mean"
    units: Units = None
    figure: FigureRows | None = None
    seed: int = 0

    def count_missing(self, first: int, second: int) -> int:
        """Return how many missing cells a claim about two rows depends on: those of cases that either has."""
        total = self.missing.total[[first, second]]
        return int(total[:, self._comparable(first, second)].sum())

    def p_at_worst(self, claims: Sequence[Claim]) -> Floats:
        """Return the one-sided p of claims about differences with missing cells at their worst.

        It is 1 if a difference does not keep its sign, and without a test.
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
        """Return the range of a row's mean, or of its figure, with its missing cells at either end."""
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
        """Return the cases that either row has: cases that neither has do not matter for claims."""
        return np.asarray(np.isfinite(self.scores[[first, second]]).any(axis=0))

    @property
    def scale(self) -> Interval:
        """Lowest and highest score that a missing cell could have."""
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
        """Expected class of each case, from any row; NaN if no cell has it."""
        truth = np.full(self.scores.shape[1], np.nan)
        for row in self.figure.rows if self.figure is not None else ():
            truth[row.column] = row.truth
        return truth

    def _with(self, rows: list[int], added: Counts, scores: Interval) -> Floats:
        """Return two rows with missing cells filled in. `scores` has the score of missing cells by row."""
        behind = np.where(np.isfinite(self.scores[rows]), self.missing.behind[rows], 0)
        count = behind + added
        sums = np.nan_to_num(self.scores[rows]) * behind + added * np.array(scores)[:, None]
        return np.asarray(np.where(count > 0, sums / np.maximum(count, 1), np.nan))


def _costliest(counts: Counts, cost: Floats, limit: int) -> Counts:
    """Return how many missing cells of each case to fill in: `limit` in all, the most costly for the claim first."""
    order = np.argsort(-np.where(np.isfinite(cost), cost, -np.inf), kind="stable")
    ordered = counts[order]
    before = np.cumsum(ordered) - ordered
    filled = np.zeros_like(counts)
    filled[order] = np.clip(limit - before, 0, ordered)
    return filled


def _filled_cells(both: FigureRows, truth: Floats, added: Counts, side: Side) -> list[RowCells]:
    """Fill in wrong answers in the row that is claimed to be better, and right ones in the other.

    Cases whose expected class no cell has stay as they are.
    """
    is_error = both.figure == "calibration_error"  # which is higher where answers are worse
    filled = []
    for place, row in enumerate(both.rows):
        columns = np.repeat(np.arange(both.columns), np.where(np.isfinite(truth), added[place], 0))
        expected = truth[columns].astype(np.int64)
        is_wrong = (place == 0) == ((side > 0) != is_error)
        answers = (failed_score if is_wrong else right_score)(both.figure, expected)
        added_cells = RowCells(expected, answers, columns)
        filled.append(RowCells(*(np.concatenate(parts) for parts in zip(row, added_cells, strict=True))))
    return filled


def right_score(figure: Figure, truth: NDArray[np.signedinteger]) -> Floats:
    """Return the results of right answers: the class, or the best score for the expected class."""
    if figure == "auc":
        return np.where(truth == 1, np.inf, -np.inf)
    return np.asarray(truth, dtype=np.float64)


SIGNIFICANT = ALPHA


class Tests(NamedTuple):
    """Tests of rows against one other row; NaN for rows without one.

    Attributes:
        p: Two-sided p of the measured scores.
        at_worst: For tests below 5% whose pairs lack cells, the larger of p and that with these cells at their worst.
        missing: How many cells are missing in each pair.
    """

    p: Floats
    at_worst: Floats
    missing: NDArray[np.int64]

    @property
    def lasting(self) -> Floats:
        """The p-values that count: with missing cells at their worst."""
        return np.where(np.isnan(self.at_worst), self.p, self.at_worst)


def test_columns(tested: Sequence[Tested]) -> tuple[Floats, Floats]:
    """Return the p-values and differences of tests, NaN where there is none."""
    return (
        np.array([np.nan if test.p is None else test.p for test in tested]),
        np.array([np.nan if test.delta is None else test.delta for test in tested]),
    )


def with_worst(pairs: Pairs | None, other: int | None, p: Floats, deltas: Floats) -> Tests:
    """Test rows against one other with missing cells at their worst.

    Args:
        pairs: The table; None if nothing is missing.
        other: The row that the others are compared with.
        p: The two-sided p of each row of the table.
        deltas: By how much each row scores higher than the other one.
    """
    at_worst, missing = np.full(len(p), np.nan), np.zeros(len(p), dtype=np.int64)
    if pairs is None or other is None:
        return Tests(p, at_worst, missing)
    for row in range(len(p)):
        missing[row] = 0 if row == other else pairs.count_missing(row, other)
    claimed = np.flatnonzero((p < SIGNIFICANT) & (missing > 0) & np.isfinite(deltas) & (deltas != 0)).tolist()
    claims = [Claim(row, other, 1 if deltas[row] > 0 else -1) for row in claimed]
    # Missing cells may weaken a claim, but never strengthen it.
    at_worst[claimed] = np.maximum(p[claimed], pairs.p_at_worst(claims))
    return Tests(p, at_worst, missing)


def corrected(p: Floats, at_worst: Floats, share: float | Floats = 1.0) -> tuple[Floats, NDArray[np.bool_]]:
    """Return Holm-corrected p-values with missing cells at their worst, and which rows depend on these.

    Args:
        p: Two-sided p of the measured scores; NaN without a test.
        at_worst: The same with missing cells at their worst; NaN if nothing changes.
        share: The part of 5% that is left, for all or for each.
    """
    share = np.maximum(share, SMALLEST_P)
    with np.errstate(over="ignore"):  # what is beyond all numbers is 1
        plain = np.minimum(1.0, holm(p) / share)
        lasting = np.minimum(1.0, holm(np.where(np.isnan(at_worst), p, at_worst)) / share)
    return lasting, (plain < SIGNIFICANT) & ~(lasting < SIGNIFICANT) & np.isfinite(at_worst)


def count_of(pairs: Pairs, first: int, rivals: Sequence[int]) -> int:
    """Return how many missing cells claims about one row and several others depend on."""
    total = pairs.missing.total[[first, *rivals]]
    has_score = np.isfinite(pairs.scores[[first, *rivals]]).any(axis=0)
    return int(total[:, has_score].sum())


Ranges = tuple[list[int], list[Interval | None], list[Interval | None]]


def ranges(pairs: Pairs | None, other: int | None, rows: int) -> Ranges:
    """Return for each row its missing cells, and the ranges of its mean and its difference with them.

    Args:
        pairs: The table; None if nothing is missing.
        other: The row that the others are compared with.
        rows: How many rows there are.
    """
    counts, means, deltas = [0] * rows, list[Interval | None]([None] * rows), list[Interval | None]([None] * rows)
    for row in range(rows) if pairs is not None else ():
        assert pairs is not None
        counts[row] = int(pairs.missing.total[row].sum())
        if counts[row] and np.isfinite(pairs.scores[row]).any():
            means[row] = pairs.mean_range(row)
        if other not in (None, row) and pairs.count_missing(row, other):
            low, high = (pairs.fills(Claim(row, other, side))[0].estimate for side in (1, -1))
            if np.isfinite(low) and np.isfinite(high):
                deltas[row] = (low, high)
    return counts, means, deltas
