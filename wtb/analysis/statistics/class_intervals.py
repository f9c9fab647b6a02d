"""Intervals of figures over all cells of a row, which depend on the cells of a class instead of on all of them.

A rate over the cells of one class is a proportion of these, so Wilson's (1927) interval is valid however rare the class
is. F1 is a function of such a rate: of the cells that are expected or found to be of the class, the share that is both.
A mean over classes, and a difference of two rows, combine the intervals of their parts (Zou & Donner 2008). AUC has the
hull of its logit interval and of Hall's; kappa uses Fisher's scale. The spread of a calibration error grows with the
error, so its interval contains the errors that do not contradict the measured one, as Wilson's does. With fewer than
FEWEST_OF_CLASS cases of the class that counts none of them is valid, and there is no interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import (
    ONE_SIDED,
    Floats,
    Interval,
    Units,
    Z,
    intervals,
    logistic,
    t_quantile,
    wilson,
)
from wtb.analysis.statistics.row_figures import BINS, FigureRows, Labels, RowCells, bin_of, by_case, contributions
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import FEWEST_OF_CLASS, Figure

_MOST_UNEVEN = 0.1  # what uneven bins add to the variance of a calibration error, beside its square
_MEANS: dict[Figure, Figure] = {"macro_f1": "class_f1", "balanced_accuracy": "class_recall"}  # over classes, of what
_LINEAR: frozenset[Figure] = frozenset({"auc", "calibration_error"})  # differences of which are as good as normal
_NONE = (math.nan, math.nan)


class ClassCount(NamedTuple):
    """The number of cases that the interval of a row depends on.

    Attributes:
        label: The number of the class; None for all but the most common class.
        is_found: True if these are the cases in which the row found the class, instead of those expected to be of it.
        units: Cases, or clusters of them.
    """

    label: int | None
    is_found: bool
    units: int

    @property
    def is_enough(self) -> bool:
        """True if there are enough cases for an interval."""
        return self.units >= FEWEST_OF_CLASS


class FigureDifferences(NamedTuple):
    """Differences of figures, one per row.

    Attributes:
        swaps: The contribution of each case (see `FigureRows.swaps`).
        ends: Their 95% intervals.
        inner: Their 90% intervals, whose ends are one-sided 95% bounds.
    """

    swaps: Floats
    ends: Floats
    inner: Floats

    def times(self, sign: float) -> FigureDifferences:
        """Return the differences, with the other sign if `sign` is negative."""
        if sign > 0:
            return self
        return FigureDifferences(-self.swaps, -self.ends[:, ::-1], -self.inner[:, ::-1])


@frozen
class _Part:
    """A rate, or a figure, with its interval and the influence of each unit."""

    value: float
    interval: Interval
    influence: Floats


def counted(figure: Figure, row: RowCells, units: Units = None) -> ClassCount:
    """Count the cases that the interval of a row depends on.

    Args:
        figure: One of `wtb.core.scoring.measure`.
        row: Its cells.
        units: The cluster of each column; None if each case is its own.
    """
    of = _units_of(row, units)
    if figure == "class_precision":
        return ClassCount(1, True, np.unique(of[row.observed == 1]).size)
    if figure in ("class_recall", "class_f1"):
        return ClassCount(1, False, np.unique(of[row.truth == 1]).size)
    counts = [(np.unique(of[row.truth == label]).size, int(label)) for label in np.unique(row.truth)]
    if figure == "cohen_kappa":
        return ClassCount(None, False, sum(count for count, _ in counts) - max(counts, default=(0, 0))[0])
    count, label = min(counts, default=(0, 0))
    return ClassCount(label, False, count if len(counts) > 1 else 0)


def row_intervals(rows: FigureRows, units: Units = None, z: float = Z) -> Floats:
    """Return an interval for the figure of each row: rows x 2, NaN with too few cases of the class that counts.

    Args:
        rows: The cells.
        units: The cluster of each column; None if each case is its own.
        z: The normal quantile of the level; 1.96 gives 95%.
    """
    bounds = [_of_row(rows.figure, row, units, z).interval for row in rows.rows]
    return np.array(bounds, dtype=np.float64).reshape(-1, 2)


def differences(
    rows: FigureRows, row: int, other_rows: Sequence[int], units: Units = None, *, one_sided: bool = False
) -> FigureDifferences:
    """Compare a row's figure with that of others, over the cases that both have.

    Args:
        rows: The cells.
        row: The number of the row.
        other_rows: The numbers of the others.
        units: The cluster of each column; None if each case is its own.
        one_sided: Compute the inner intervals, too.

    Returns:
        The row's figure minus those of the others, without an interval if either has too few cases of the class.
    """
    ends, inner = (
        _differences(rows, row, other_rows, units, z) if z else np.full((len(other_rows), 2), np.nan)
        for z in (Z, ONE_SIDED if one_sided else None)
    )
    return FigureDifferences(rows.swaps(row, other_rows), ends, inner)


def _differences(rows: FigureRows, row: int, other_rows: Sequence[int], units: Units, z: float) -> Floats:
    whole: dict[int, _Part] = {}  # of rows without missing cases, which are compared over all of theirs
    columns = {number: np.unique(rows.rows[number].column) for number in {row, *other_rows}}

    def part(number: int, common: Labels) -> _Part:
        if common.size < columns[number].size:
            return _of_row(rows.figure, rows.rows[number].within(common), units, z)
        if number not in whole:
            whole[number] = _of_row(rows.figure, rows.rows[number], units, z)
        return whole[number]

    ends = np.full((len(other_rows), 2), np.nan)
    for place, other in enumerate(other_rows):
        common = np.intersect1d(columns[row], columns[other], assume_unique=True)
        first, second = part(row, common), part(other, common)
        if not (math.isnan(first.interval[0]) or math.isnan(second.interval[0])):
            ends[place] = _difference(rows.figure, first, second, _count_units(common, units), z)
    return ends


def _count_units(columns: Labels, units: Units) -> int:
    return columns.size if units is None else np.unique(units[columns]).size


def _difference(figure: Figure, first: _Part, second: _Part, units: int, z: float) -> Interval:
    size = max(first.influence.size, second.influence.size)
    influence = [np.pad(part.influence, (0, size - part.influence.size)) for part in (first, second)]
    if figure in _LINEAR:
        changes = influence[0] - influence[1]
        changes = changes[np.argsort(changes == 0, kind="stable")][:units]  # without the units that have no case here
        (low, high), *_ = intervals((first.value - second.value + units * changes)[None], z).tolist()
        return low, high
    mirrored = (-second.interval[1], -second.interval[0])
    return _combined([replace(first, influence=influence[0]), _Part(-second.value, mirrored, -influence[1])])


def _of_row(figure: Figure, row: RowCells, units: Units, z: float) -> _Part:
    if not counted(figure, row, units).is_enough:
        return _Part(math.nan, _NONE, np.zeros(0))
    of = _units_of(row, units)
    if (part := _MEANS.get(figure)) is not None:
        labels = np.unique(row.truth)
        parts = [_rate(part, row.truth == label, row.observed == label, of, z) for label in labels]
        low, high = _combined(parts)
        mean, size = sum(part.value for part in parts) / len(parts), len(parts)
        middle = mean * size
        ends = (mean + (low - middle) / size, mean + (high - middle) / size)
        return _Part(mean, ends, np.asarray(sum(part.influence for part in parts) / size))
    if figure in _OTHERS:
        return _OTHERS[figure](row, of, z)
    return _rate(figure, row.truth == 1, row.observed == 1, of, z)


def _units_of(row: RowCells, units: Units) -> Labels:
    return row.column if units is None else units[row.column]


def _rate(figure: Figure, is_expected: NDArray[np.bool_], is_found: NDArray[np.bool_], of: Labels, z: float) -> _Part:
    """Return recall, precision or F1 of one class."""
    both = is_expected & is_found
    among = {"class_recall": is_expected, "class_precision": is_found}.get(figure, is_expected | is_found)
    cells, cases = int(among.sum()), np.unique(of[among]).size
    rate = float(both.sum()) / cells
    influence = np.bincount(of, np.where(among, both - rate, 0.0)) / cells
    # Cells of one case succeed together, so they count as fewer: as many as would give the variance of their cases.
    effective = float(cells)
    if cases < cells:
        variance = float((influence**2).sum())
        effective = min(effective, rate * (1 - rate) / variance) if variance > 0 else float(cases)
    low, high = wilson(rate * effective, effective, z)
    if figure != "class_f1":
        return _Part(rate, (low, high), influence)
    f1, low, high = (2 * share / (1 + share) for share in (rate, low, high))
    return _Part(f1, (low, high), influence * 2 / (1 + rate) ** 2)


def _combined(parts: Sequence[_Part]) -> Interval:
    """Return the interval of the sum of parts, given how units move them together."""
    influence = np.array([part.influence for part in parts])
    size = np.sqrt((influence**2).sum(axis=1))
    size[size == 0] = 1.0
    together = influence @ influence.T / np.outer(size, size)
    np.fill_diagonal(together, 1.0)
    values = np.array([part.value for part in parts])
    down, up = (np.abs(np.array([part.interval[end] for part in parts]) - values) for end in (0, 1))
    total = float(values.sum())
    return total - math.sqrt(max(down @ together @ down, 0.0)), total + math.sqrt(max(up @ together @ up, 0.0))


def _auc(row: RowCells, of: Labels, z: float) -> _Part:
    values = contributions("auc", row.truth, row.observed, of)
    auc = float(values.mean())
    # Each class has a mean of its own, from which its cases differ too little by one in their number.
    cases = [np.unique(of[row.truth == label]).size for label in (0, 1)]
    wider = np.array([math.sqrt(count / (count - 1)) for count in cases])[(row.truth == 1).astype(np.int64)]
    values = auc + (values - auc) * wider
    each = by_case(values, of)[1]
    influence = np.bincount(of, values - auc) / len(values)
    (low, high), error = intervals(each[None], z)[0].tolist(), float(np.sqrt((influence**2).sum()))
    if not 0 < auc < 1 or error == 0 or math.isnan(low):
        return _Part(auc, _NONE, influence)
    middle, half = math.log(auc / (1 - auc)), t_quantile(min(cases) - 1, z) * error / (auc * (1 - auc))
    logit = (logistic(middle - half), logistic(middle + half))
    return _Part(auc, (min(low, logit[0]), min(max(high, logit[1]), 1.0)), influence)


def _kappa(row: RowCells, of: Labels, z: float) -> _Part:
    values = contributions("cohen_kappa", row.truth, row.observed, of)
    each, kappa = by_case(values, of)[1], float(values.mean())
    influence = np.bincount(of, values - kappa) / len(values)
    error, slope = float(each.std(ddof=1)) / math.sqrt(each.size), 1 - kappa**2
    if math.isnan(kappa) or min(error, slope) <= 0:
        return _Part(kappa, _NONE, influence)
    middle, half = math.atanh(kappa), t_quantile(each.size - 1, z) * error / slope
    return _Part(kappa, (math.tanh(middle - half), math.tanh(middle + half)), influence)


def _calibration_error(row: RowCells, of: Labels, z: float) -> _Part:
    """Solve for the errors x with (measured - x)^2 <= z^2 (a x + b + c x^2).

    a x is the variance from the gap of each bin, b that of gaps that are 0, and c x^2 that of the number of cells in
    each bin.
    """
    values = contributions("calibration_error", row.truth, row.observed, of)
    error, cells = float(values.mean()), len(values)
    gaps, place = row.observed - row.truth, bin_of(row.observed)
    counts = np.bincount(place, minlength=BINS)
    share, several = counts / cells, np.maximum(counts - 1, 1)
    middles = np.bincount(place, gaps, BINS) / np.maximum(counts, 1)
    variance = np.bincount(place, (gaps - middles[place]) ** 2, BINS) / several
    squares = np.maximum(middles**2 - variance / np.maximum(counts, 1), 0.0)
    total = float(share @ squares)
    a = 4 * float((share * squares) @ variance / total if total > 0 else share @ variance) / cells
    b = 2 * float((share**2 * variance**2 / (np.maximum(counts, 1) * several)).sum())
    c = min((float(share @ squares**2) / total**2 - 1) / cells, _MOST_UNEVEN) if total > 0 else 0.0
    influence = np.bincount(of, values - error) / cells
    independent = float(((values - error) ** 2).sum()) / cells**2
    together = max(1.0, float((influence**2).sum()) / independent) if independent > 0 else 1.0
    square = z * z * together
    leading, linear, rest = 1 - square * c, 2 * error + square * a, error**2 - square * b
    if leading <= 0:
        return _Part(error, _NONE, influence)
    root = math.sqrt(max(linear**2 - 4 * leading * rest, 0.0))
    return _Part(error, ((linear - root) / (2 * leading), (linear + root) / (2 * leading)), influence)


_OTHERS = {"auc": _auc, "cohen_kappa": _kappa, "calibration_error": _calibration_error}  # that are no rate of a class
