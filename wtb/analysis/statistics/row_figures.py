"""Figures over all cells of a row, such as F1 or AUC, which are not means of values of single cells.

Each is linearised around its own value: a cell contributes the figure and its influence on it (Hampel 1974). The mean
of the contributions is the figure itself, so methods for means apply in the limit of many cases: intervals, paired
differences, clusters. For AUC they are the components of DeLong et al. (1988).

A test of two rows linearises both around the value of their cells together, as score tests do (Kosinski 2013, for
predictive values). If two rows swap their results of a case, only the sign of its contribution changes, so flipping
signs is as exact as for means, however few cases are of a class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Figure, Passes

Labels = NDArray[np.signedinteger[Any]]
NO_CLASS = -1  # of a cell that found none
BINS = 10  # of equal width, from 0 to 1


def contributions(figure: Figure, truth: Labels, observed: Floats, cases: Labels) -> Floats:
    """Return the contribution of each cell of a row to a figure; their mean is the figure.

    Args:
        figure: One of `wtb.core.scoring.measure`.
        truth: The expected class of each cell; for figures of scores, whether it is positive (1) or not (0).
        observed: The class of each cell, NO_CLASS for none; for figures of scores, the score.
        cases: The case of each.

    Returns:
        One value per cell; NaN if the figure is undefined, such as AUC of positive cells only.
    """
    if figure == "calibration_error":
        return _calibration_error(truth, observed, cases)
    return _FIGURES[figure](truth, observed)


def by_case(values: Floats, cases: Labels) -> tuple[Labels, Floats, Labels]:
    """Return the cases of a row, the contribution of each with all of its cells, and their number of cells.

    The mean over cases equals the mean over cells, even if some cases have more of them.
    """
    numbers, place, counts = np.unique(cases, return_inverse=True, return_counts=True)
    middle = values.mean() if len(values) else np.nan
    sums = np.bincount(place, values - middle, minlength=len(numbers))
    return numbers, np.asarray(middle + sums * len(numbers) / max(1, len(values))), counts


class RowCells(NamedTuple):
    """The cells of one row, as for `contributions`. `column` is the column of each cell's case in a table of scores."""

    truth: Labels
    observed: Floats
    column: Labels

    def within(self, columns: Labels) -> RowCells:
        """Return the cells of some cases."""
        is_included = np.isin(self.column, columns)
        return RowCells(self.truth[is_included], self.observed[is_included], self.column[is_included])


@frozen
class FigureRows:
    """The cells of rows of a table, for tests of two of them.

    Attributes:
        figure: One of `wtb.core.scoring.measure`.
        rows: The cells of each row.
        columns: The number of columns of the table.
        names: Class number -> name.
    """

    figure: Figure
    rows: Sequence[RowCells]
    columns: int
    names: Mapping[int, str] = field(default_factory=dict)

    def part(self, rows: Sequence[int], selected: NDArray[np.bool_] | None = None) -> FigureRows:
        """Return some rows, over the selected cases."""
        if selected is None:
            return replace(self, rows=[self.rows[row] for row in rows])
        old = np.flatnonzero(selected)
        some = [self.rows[row].within(old) for row in rows]
        moved = [cells._replace(column=np.searchsorted(old, cells.column)) for cells in some]
        return replace(self, rows=moved, columns=len(old))

    def swaps(self, row: int, other_rows: Sequence[int]) -> Floats:
        """Return the contribution of each case to the difference of a row from others.

        Args:
            row: The number of the row.
            other_rows: The numbers of the others.

        Returns:
            Others x columns, NaN if either has no cell. If the two rows swapped their results of a case, only the sign
            of its contribution would change.
        """
        swaps = np.full((len(other_rows), self.columns), np.nan)
        for place, other in enumerate(other_rows):
            common = np.intersect1d(self.rows[row].column, self.rows[other].column)
            if common.size:
                both = (self.rows[number].within(common) for number in (row, other))
                swaps[place, common] = _swap(self.figure, *both)
        return swaps


def _swap(figure: Figure, row: RowCells, other: RowCells) -> Floats:
    """Return the contributions of common cases to the difference of two rows.

    AUC uses ranks within a row, whatever scale its scores are on (Bandos, Rockette & Gur 2005). Miscalibrations of two
    rows may go in opposite directions and cancel when pooled, so each row is computed by itself.
    """
    if figure == "calibration_error":
        values = [contributions(figure, *cells) for cells in (row, other)]
    else:
        scores = [cells.observed for cells in (row, other)]
        if figure == "auc":
            scores = [_share_below(observed, observed) for observed in scores]
        truth, cases = (np.concatenate(both) for both in ((row.truth, other.truth), (row.column, other.column)))
        values = np.split(contributions(figure, truth, np.concatenate(scores), cases), [len(row.truth)])
    first, second = (by_case(each, cells.column)[1] for each, cells in zip(values, (row, other), strict=True))
    return np.asarray(first - second)


def failed_score(figure: Figure, truth: Labels) -> Floats:
    """Return the results of failed cells: no class, or the worst score for their expected class."""
    if figure == "auc":
        return np.where(truth == 1, -np.inf, np.inf)
    if figure == "calibration_error":
        return np.asarray(1.0 - truth)
    return np.full(len(truth), float(NO_CLASS))


class _Counts:
    """For each expected class, the shares of cells that are of it, are assigned to it, and both."""

    def __init__(self, truth: Labels, observed: Floats) -> None:
        self.classes, self.own = np.unique(truth, return_inverse=True)
        place = np.searchsorted(self.classes, observed)
        nearest = np.minimum(place, len(self.classes) - 1)
        # A class that no case expects counts as none: it is wrong either way.
        self.predicted = np.where(self.classes[nearest] == observed, nearest, NO_CLASS)
        self.right = self.own == self.predicted
        cells, size = len(truth), len(self.classes)
        self.expected = np.bincount(self.own, minlength=size) / cells
        self.claimed = np.bincount(self.predicted[self.predicted >= 0], minlength=size) / cells
        self.both = np.bincount(self.own[self.right], minlength=size) / cells

    def of_own(self, figures: Floats) -> Floats:
        """Return a figure of the expected class of each cell."""
        return figures[self.own]

    def of_predicted(self, figures: Floats) -> Floats:
        """Return a figure of the assigned class of each cell, 0 for a class that is never expected."""
        return np.where(self.predicted >= 0, figures[self.predicted], 0.0)


def _macro_f1(truth: Labels, observed: Floats) -> Floats:
    counts = _Counts(truth, observed)
    total = counts.expected + counts.claimed
    f1 = 2 * counts.both / total
    gained = np.where(counts.right, counts.of_own(2 / total), 0.0)
    influence = gained - counts.of_own(f1 / total) - counts.of_predicted(f1 / total)
    return np.asarray(f1.mean() + influence / len(f1))


def _balanced_accuracy(truth: Labels, observed: Floats) -> Floats:
    counts = _Counts(truth, observed)
    recall = counts.both / counts.expected
    influence = counts.of_own(1 / counts.expected) * (counts.right - counts.of_own(recall))
    return np.asarray(recall.mean() + influence / len(recall))


def _cohen_kappa(truth: Labels, observed: Floats) -> Floats:
    counts = _Counts(truth, observed)
    agree, chance = counts.both.sum(), counts.expected @ counts.claimed
    if chance >= 1:
        return np.full(len(truth), np.nan)
    more_chance = counts.of_own(counts.claimed) + counts.of_predicted(counts.expected) - 2 * chance
    influence = (counts.right - agree) / (1 - chance) - (1 - agree) * more_chance / (1 - chance) ** 2
    return np.asarray(1 - (1 - agree) / (1 - chance) + influence)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Return contributions to a ratio of two means."""
    mean_denominator = denominator.mean()
    if mean_denominator == 0:
        return np.full(len(numerator), np.nan)
    ratio = numerator.mean() / mean_denominator
    return np.asarray(ratio + (numerator - ratio * denominator) / mean_denominator)


def _class_f1(truth: Labels, observed: Floats) -> Floats:
    expected, claimed = truth == 1, observed == 1
    return _ratio(2.0 * (expected & claimed), expected.astype(float) + claimed)


def _class_precision(truth: Labels, observed: Floats) -> Floats:
    expected, claimed = truth == 1, observed == 1
    return _ratio((expected & claimed).astype(float), claimed.astype(float))


def _class_recall(truth: Labels, observed: Floats) -> Floats:
    expected, claimed = truth == 1, observed == 1
    return _ratio((expected & claimed).astype(float), expected.astype(float))


def _auc(truth: Labels, observed: Floats) -> Floats:
    positive = truth == 1
    share = positive.mean() if len(truth) else 0.0
    if share in (0.0, 1.0):
        return np.full(len(truth), np.nan)
    positive_scores, negative_scores = observed[positive], observed[~positive]
    won = np.empty(len(truth))  # how often a cell is on the right side of one of the other kind; a tie is half
    won[positive] = _share_below(positive_scores, negative_scores)
    won[~positive] = 1 - _share_below(negative_scores, positive_scores)
    auc = won[positive].mean()
    return np.asarray(auc + (won - auc) * np.where(positive, 1 / share, 1 / (1 - share)))


def _share_below(scores: Floats, other_scores: Floats) -> Floats:
    """Return the share of others below each score, counting equal ones half."""
    ordered = np.sort(other_scores)
    sides = np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")
    return np.asarray(sides / (2 * len(other_scores)))


def bin_of(scores: Floats) -> Labels:
    """Return the bin of each score."""
    return np.minimum((scores * BINS).astype(np.int64), BINS - 1)


def _calibration_error(truth: Labels, observed: Floats, cases: Labels) -> Floats:
    """Return contributions to the mean squared calibration error in bins, corrected for chance.

    Squared gaps between mean scores and rates are too large by chance, the more so the fewer cells there are. Products
    of the gaps of two cells are not, if these are of two cases (as in Kumar, Liang & Ma 2019).
    """
    gaps = observed - truth
    place = bin_of(observed)
    _, own = np.unique(np.column_stack([place, cases]), axis=0, return_inverse=True)
    own = own.ravel()
    other_gaps, count = (
        np.bincount(place, values, BINS)[place] - np.bincount(own, values)[own] for values in (gaps, np.ones(len(gaps)))
    )
    products = gaps * np.where(count > 0, other_gaps / np.maximum(count, 1), 0.0)
    of_bin = np.bincount(place, products, BINS) / np.maximum(np.bincount(place, minlength=BINS), 1)
    return np.asarray(2 * products - of_bin[place])


_FIGURES: Mapping[Figure, Callable[[Any, Any], Floats]] = {
    "macro_f1": _macro_f1,
    "balanced_accuracy": _balanced_accuracy,
    "cohen_kappa": _cohen_kappa,
    "class_f1": _class_f1,
    "class_precision": _class_precision,
    "class_recall": _class_recall,
    "auc": _auc,
}


def over_repeats(passes: Passes, rates: Floats, repeats: NDArray[Any]) -> Floats:
    """Estimate the figure of each case.

    Args:
        passes: The figure.
        rates: The shares of repeats that passed, of any shape.
        repeats: The number of repeats of each.

    Returns:
        Estimates of the same shape; NaN for fewer than k repeats.
    """
    counts = np.column_stack([repeats.ravel(), np.rint(np.nan_to_num(rates.ravel()) * repeats.ravel())])
    kinds, place = np.unique(counts.astype(np.int64), axis=0, return_inverse=True)
    estimates = [passes.estimate(n, passed) for n, passed in kinds.tolist()]
    values = np.array([np.nan if estimate is None else estimate for estimate in estimates], dtype=np.float64)
    return np.asarray(values[place.ravel()].reshape(rates.shape))
