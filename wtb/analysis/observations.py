"""What cells tell of figures over all cells of a row, and what each of them contributes to these."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.figures.row_figures import (
    NO_CLASS,
    FigureRows,
    RowCells,
    by_case,
    contributions,
    failed_score,
)
from wtb.core.classes.frozen import frozen
from wtb.core.scoring.figures import OF_CLASSES, OF_SCORES, Figure, Label, read_observed
from wtb.store.database import Database
from wtb.store.read import aggregates

_MOST_KEPT = 10_000  # texts, which most cells have in common


@frozen
class Observations:
    """Cells in no order, 24 bytes each.

    Attributes:
        figure: what they tell of.
        place: combination, case and repeat of each.
        truth, observed: as for `contributions`.
        names: of the classes, by their numbers.
    """

    figure: Figure
    place: NDArray[np.int32]
    truth: NDArray[np.int32]
    observed: Floats
    names: Mapping[int, str] = field(default_factory=dict)

    def part(self, selected: NDArray[np.bool_] | NDArray[np.int64]) -> Observations:
        """Return some of the cells."""
        return replace(self, place=self.place[selected], truth=self.truth[selected], observed=self.observed[selected])

    def with_failed(self, failed: NDArray[np.int64]) -> Observations:
        """Return these and cells that failed: they are wrong. Of cases of which no cell says what is expected, none."""
        cases, first = np.unique(self.place[:, 1], return_index=True)
        where = np.searchsorted(cases, failed[:, 1])
        has_truth = np.isin(failed[:, 1], cases)
        truth = self.truth[first[where[has_truth]]]
        return replace(
            self,
            place=np.vstack([self.place, failed[has_truth].astype(np.int32)]),
            truth=np.concatenate([self.truth, truth]),
            observed=np.concatenate([self.observed, failed_score(self.figure, truth)]),
        )

    def contributions(self) -> Floats:
        """(combination, case, repeat, what the cell contributes to its row), but of rows that have no such figure."""
        parts = [np.empty((0, 4))]
        for row in self._rows():
            values = contributions(self.figure, row.truth, row.observed, row.place[:, 1])
            if np.isfinite(values).all():
                parts.append(np.column_stack([row.place, values]))
        return np.vstack(parts)

    def rows(self, shape: tuple[int, int], row_of: NDArray[np.int64], column_of: NDArray[np.int64]) -> FigureRows:
        """Return the cells of each row of a table.

        shape: of the table. row_of, column_of: the row of each combination and the column of each case, by their
        numbers; -1 where the table has none.
        """
        rows, columns = row_of[self.place[:, 0]], column_of[self.place[:, 1]]
        is_included = (rows >= 0) & (columns >= 0)
        order = np.flatnonzero(is_included)[np.argsort(rows[is_included], kind="stable")]
        parts = np.split(order, np.searchsorted(rows[order], np.arange(1, shape[0])))
        cells = [RowCells(self.truth[part], self.observed[part], columns[part]) for part in parts]
        return FigureRows(self.figure, cells, shape[1], self.names)

    def _rows(self) -> Iterable[Observations]:
        order = np.argsort(self.place[:, 0], kind="stable")
        starts = np.unique(self.place[order, 0], return_index=True)[1]
        return (self.part(part) for part in np.split(order, starts[1:]) if len(part))


def observations(database: Database, sweep_id: str, metric: str, numbers: Numbers, *, edited: bool) -> Observations:
    """What the cells of a sweep tell of a figure. numbers: of the classes, the same for sweeps that are compared."""
    figure = numbers.figure
    place, truth, observed = array("i"), array("i"), array("d")
    for part in aggregates.observed_scores(database, sweep_id, metric, edited=edited):
        for combination, case, repeat, value, text in part:
            expected, had = numbers.read(text)
            place.extend((combination, case, repeat))
            truth.append(expected)
            observed.append(value if figure in OF_SCORES else had)
    columns = np.array(place, dtype=np.int32).reshape(-1, 3)
    return Observations(figure, columns, np.array(truth, dtype=np.int32), np.array(observed), numbers.names)


class Numbers:
    """The numbers of the classes of a figure, as they come; of figures of one class it is 1 and others are 0."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self._numbers: dict[Label, int] = {None: NO_CLASS}
        self._is_numbered = figure not in OF_CLASSES
        self._read: dict[str, tuple[int, int]] = {}

    def read(self, text: str) -> tuple[int, int]:
        """What was expected of a cell, and what it found."""
        if text not in self._read:
            if len(self._read) > _MOST_KEPT:
                self._read.clear()
            expected, observed = read_observed(text)
            self._read[text] = self._number(expected), self._number(observed)
        return self._read[text]

    @property
    def names(self) -> dict[int, str]:
        """The names of the classes that were read, by their numbers."""
        if self._is_numbered:
            return {1: "positive", 0: "other"}
        return {number: str(label) for label, number in self._numbers.items() if label is not None}

    def _number(self, label: Label) -> int:
        if self._is_numbered:
            return int(label == 1)
        return self._numbers.setdefault(label, len(self._numbers))


def case_means(cells: Floats) -> Floats:
    """(combination, case, contribution, cells) of `Observations.contributions`."""
    parts = [np.empty((0, 4))]
    for number in np.unique(cells[:, 0]):
        row = cells[cells[:, 0] == number]
        cases, values, counts = by_case(row[:, 3], row[:, 1].astype(np.int64))
        parts.append(np.column_stack([np.full(len(cases), number), cases, values, counts]))
    return np.vstack(parts)
