"""Observations: what each cell adds to figures that are computed over all cells of a row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.row_figures import NO_CLASS, FigureRows, RowCells, by_case, contributions, failed_score
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import OF_CLASSES, OF_SCORES, Figure, Label, read_observed
from wtb.store.database import Database
from wtb.store.read import aggregates

_MOST_KEPT = 10_000  # texts, which most cells have in common


@frozen
class Observations:
    """Observations of cells in no particular order, 24 bytes each.

    Attributes:
        figure: The figure that is computed from them.
        place: Combination, case and repeat of each.
        truth: As for `contributions`.
        observed: As for `contributions`.
        names: Class number -> name.
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
        """Return these and the failed cells, which count as wrong. Failed cells of cases without a known expectation
        are dropped."""
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
        """Return (combination, case, repeat, contribution of the cell), without rows whose figure is undefined."""
        parts = [np.empty((0, 4))]
        for row in self._rows():
            values = contributions(self.figure, row.truth, row.observed, row.place[:, 1])
            if np.isfinite(values).all():
                parts.append(np.column_stack([row.place, values]))
        return np.vstack(parts)

    def rows(self, shape: tuple[int, int], row_of: NDArray[np.int64], column_of: NDArray[np.int64]) -> FigureRows:
        """Return the cells of each row of a table.

        Args:
            shape: The shape of the table.
            row_of: The row of each combination, by its number; -1 if the table has none.
            column_of: The column of each case, by its number; -1 if the table has none.
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
    """Read the observations of a sweep's cells. Sweeps that are compared must share the class `numbers`."""
    figure = numbers.figure
    # Arrays instead of lists: a million cells as tuples of Python objects take several times the memory.
    place, truth, observed = array("i"), array("i"), array("d")
    for part in aggregates.observed_scores(database, sweep_id, metric, edited=edited):
        for combination, case, repeat, score, text in part:
            expected, had = numbers.read(text)
            place.extend((combination, case, repeat))
            truth.append(expected)
            observed.append(score if figure in OF_SCORES else had)
    columns = np.array(place, dtype=np.int32).reshape(-1, 3)
    return Observations(figure, columns, np.array(truth, dtype=np.int32), np.array(observed), numbers.names)


class Numbers:
    """Numbers of the classes of a figure in order of appearance; for figures of one class, 1 is the class and 0 the
    rest."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self._numbers: dict[Label, int] = {None: NO_CLASS}
        self._is_numbered = figure not in OF_CLASSES
        self._read: dict[str, tuple[int, int]] = {}

    def read(self, text: str) -> tuple[int, int]:
        """Return the numbers of the expected and the observed class of a cell."""
        if text not in self._read:
            # Free text as a class would fill the memory; clearing is safe because `_numbers` keeps the class numbers.
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
    """Return rows of (combination, case, contribution, cells) from `Observations.contributions`."""
    parts = [np.empty((0, 4))]
    for number in np.unique(cells[:, 0]):
        row = cells[cells[:, 0] == number]
        cases, values, counts = by_case(row[:, 3], row[:, 1].astype(np.int64))
        parts.append(np.column_stack([np.full(len(cases), number), cases, values, counts]))
    return np.vstack(parts)
