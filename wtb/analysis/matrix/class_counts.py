"""How many cases are of each class, which intervals of figures over all cells of a row rest on, also in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wtb.analysis.scores import ScoreTable
from wtb.analysis.statistics.figures.class_intervals import ClassCount, counted
from wtb.analysis.statistics.figures.row_figures import FigureRows
from wtb.core.scoring.figures import OfClass, class_sentence

if TYPE_CHECKING:
    from wtb.core.documents.matrix import ClassesDocument, MetricDocument, RowDocument


def add_class_counts(metric: str, table: ScoreTable, rows: Sequence[RowDocument], document: MetricDocument) -> None:
    """Add to a metric, and to the rows of a matrix, how many cases are of each class and how many intervals rest on.

    Metrics that are no figure over all cells of a row stay as they are.
    """
    if table.figure is None:
        return
    counts = []
    for row, cells in zip(rows, table.figure.rows, strict=False):  # rows that were added have none
        if len(cells.truth):
            counts.append(counted(table.figure.figure, cells, table.units))
            row["metrics"][metric]["class_cases"] = counts[-1].units
    if counts:
        document["classes"] = _classes(metric, table, table.figure, counts)


def _classes(metric: str, table: ScoreTable, figure: FigureRows, counts: Sequence[ClassCount]) -> ClassesDocument:
    cases = np.unique(np.concatenate([np.column_stack([row.truth, row.column]) for row in figure.rows]), axis=0)
    labels, sizes = np.unique(cases[:, 0], return_counts=True)
    by_size = sorted(zip(sizes.tolist(), labels.tolist(), strict=True))
    return {
        "cases": {figure.names.get(label, str(label)): size for size, label in by_size},
        "fewest": min(counts, key=_units).units,
        "enough": all(count.is_enough for count in counts),
        "sentence": _sentence(metric, figure, counts, "cases" if table.units is None else "clusters"),
    }


def few_of_class(metrics: Iterable[MetricDocument]) -> list[str]:
    """Return sentences about metrics of which rows have no interval because too few cases are of a class."""
    return [
        metric["classes"]["sentence"] for metric in metrics if "classes" in metric and not metric["classes"]["enough"]
    ]


def _units(count: ClassCount) -> int:
    return count.units


def _sentence(metric: str, rows: FigureRows, counts: Sequence[ClassCount], unit: str) -> str:
    least, largest = min(counts, key=_units), max(counts, key=_units)
    name = None if least.label is None else rows.names.get(least.label, str(least.label))
    return class_sentence(metric, rows.figure, OfClass(least.units, largest.units, name, least.is_found, unit))
