"""What came of two sweeps as tables of the same shape: combinations x cases, repeats averaged, case beside case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtb.analysis import scores
from wtb.analysis.comparison.pairing import Pairs
from wtb.analysis.observations import Numbers
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.figures.class_intervals import FigureDifferences, differences
from wtb.analysis.statistics.figures.row_figures import FigureRows
from wtb.analysis.statistics.missing.before_and_after import BeforeAndAfter
from wtb.analysis.statistics.missing.missing_cells import MissingCells
from wtb.analysis.statistics.missing.worst_case import Pairs as TableOfPairs
from wtb.analysis.statistics.paired import subtract
from wtb.core.classes.frozen import frozen
from wtb.core.providers.faults import is_waiting
from wtb.core.scoring.measure import Measure
from wtb.store.database import Database
from wtb.store.read import outcomes
from wtb.store.tables.sweeps import SweepRow

Booleans = NDArray[np.bool_]


@frozen
class Outcomes:
    """The share of the repeats of each cell that failed (NaN: no outcome), and an execution, in each sweep.

    unpaired: cells that fail in the later sweep and have no outcome to be compared with.
    lost: whether each cell, or a score of it, was lost to a provider, or it waits for one, in each sweep.
    """

    before: Floats
    after: Floats
    executions: tuple[NDArray[Any], NDArray[Any]]
    unpaired: int
    lost: tuple[Booleans, Booleans]

    @property
    def lost_shares(self) -> tuple[float, float]:
        """The greatest share of a combination's cells that was lost to a provider: (before, after)."""
        before, after = (float(lost.mean(axis=1).max()) if lost.size else 0.0 for lost in self.lost)
        return before, after

    @property
    def compared(self) -> int:
        return int((np.isfinite(self.before) & np.isfinite(self.after)).sum())

    @property
    def still_failing(self) -> int:
        return int(((self.before > 0) & (self.after > 0)).sum())

    @property
    def missing(self) -> tuple[int, int]:
        """Cells without an outcome here that have one in the other sweep: (before, after)."""
        none = np.isnan(self.before), np.isnan(self.after)
        first, second = none[0] & ~none[1] & ~self.lost[0], none[1] & ~none[0] & ~self.lost[1]
        return int(first.sum()), int(second.sum())

    def succeeded(self, row: int) -> bool:
        """Return whether any cell of a combination did, in both sweeps."""
        return bool(((self.before[row] < 1) & (self.after[row] < 1)).any())


def read_outcomes(database: Database, before: SweepRow, after: SweepRow, pairs: Pairs) -> Outcomes:
    """How the cells of two sweeps ended."""
    ended_cells = [outcomes.outcomes(database, sweep.id) for sweep in (before, after)]
    before_shares, after_shares = (
        _share_failed(pairs.table(side, rows, 2), pairs.table(side, rows, 3)) for side, rows in enumerate(ended_cells)
    )
    first, second = (pairs.table(side, rows, 4, object) for side, rows in enumerate(ended_cells))
    failing = sum(row[3] > 0 for row in ended_cells[1]) - int(((after_shares > 0) & np.isfinite(before_shares)).sum())
    unscored = [outcomes.scores_lost_to_provider(database, sweep.id) for sweep in (before, after)]
    before_lost, after_lost = (
        (pairs.table(side, rows, 5) > 0)
        | (pairs.table(side, unscored[side], 2) > 0)
        | (np.isnan(share) & is_waiting(sweep.reason))
        for side, (rows, share, sweep) in enumerate(
            zip(ended_cells, (before_shares, after_shares), (before, after), strict=True)
        )
    )
    return Outcomes(before_shares, after_shares, (first, second), failing, (before_lost, after_lost))


def _share_failed(succeeded: Floats, failed: Floats) -> Floats:
    ended = succeeded + failed
    return np.asarray(failed / np.where(ended > 0, ended, np.nan))


@frozen
class Scores:
    """One metric.

    figures: what is known of the later less the earlier figure over all cells of a row, of others None.
    listed: what cases are listed by, in each sweep: their scores, or whether they are right where a figure is over all
    cells of a row. lost, regained: whether evaluators fail now where they gave a score before, or the other way;
    a failure of a provider is neither.
    counts_failures: whether cells that fail have a score. sides: the scores with the cells that are missing, None where
    none are.
    """

    metric: str
    measure: Measure
    before: Floats
    after: Floats
    differences: Floats
    listed: tuple[Floats, Floats]
    lost: Booleans
    regained: Booleans
    counts_failures: bool = False
    figures: FigureDifferences | None = None
    sides: BeforeAndAfter | None = None

    @property
    def gains(self) -> Floats:
        """The differences, positive where the later sweep is better."""
        return self.differences if self.measure.better == "higher" else -self.differences

    @property
    def changes(self) -> Floats:
        """By how much what is shown of a case differs."""
        return subtract(self.listed[1], self.listed[0])

    @property
    def is_typical(self) -> bool:
        """Return whether what counts is the median of the differences, else their mean."""
        return self.measure.compare == "median"

    @property
    def are_rates(self) -> bool:
        """Return whether all scores are 0 or 1."""
        return (
            not self.is_typical
            and self.measure.figure is None
            and all(bool(np.isin(table[np.isfinite(table)], (0, 1)).all()) for table in (self.before, self.after))
        )

    @property
    def were(self) -> Booleans:
        """Which combinations had any score before."""
        return np.asarray(np.isfinite(self.before).any(axis=1))


def read_scores(
    database: Database,
    before: SweepRow,
    after: SweepRow,
    pairs: Pairs,
    measures: Mapping[str, Measure],
    lost_cells: tuple[Booleans, Booleans],
) -> list[Scores]:
    """How the cells of two sweeps score by each metric; in both a failure counts as what the later one says.

    lost_cells: which were lost to a provider, in each sweep.
    """
    sides = [scores.Scores(database, sweep, by=after) for sweep in (before, after)]
    read = []
    for metric, measure in measures.items():
        side_rows = [side.rows(metric, measure).tolist() for side in sides]
        before_scores, after_scores = (pairs.table(side, rows, 2) for side, rows in enumerate(side_rows))
        listed = before_scores, after_scores
        if measure.figure is not None:
            first, second = (side.case_rows(metric, measure).tolist() for side in sides)
            listed = pairs.table(0, first, 2), pairs.table(1, second, 2)
        failed = [outcomes.failed_scores(database, sweep.id, metric) for sweep in (before, after)]
        errors = [pairs.table(side, rows, 3) > 0 for side, rows in enumerate(failed)]
        lost, regained = (
            np.isfinite(before_scores) & np.isnan(after_scores) & errors[1],
            np.isnan(before_scores) & np.isfinite(after_scores) & errors[0],
        )
        counted = sides[1].failure_score(measure) is not None
        rows = None if measure.figure is None else _figure_rows(sides, pairs, metric, measure, Numbers(measure.figure))
        figures = None if rows is None else _figures(rows, pairs)
        behind = np.vstack(
            [np.nan_to_num(pairs.table(side, found_rows, 3)) for side, found_rows in enumerate(side_rows)]
        )
        repeats = np.repeat([int(sweep.spec["repeats"]) for sweep in (before, after)], len(before_scores))
        missing = _missing_cells(behind, repeats, np.vstack(lost_cells))
        both = None
        if missing is not None:
            seed = int(after.spec.get("seed", 0))
            table = TableOfPairs(
                np.vstack([before_scores, after_scores]),
                missing,
                measure.scale,
                measure.compare,
                pairs.units,
                rows,
                seed,
            )
            both = BeforeAndAfter(table, measure.better == "higher")
        changed = subtract(after_scores, before_scores)
        read.append(
            Scores(
                metric, measure, before_scores, after_scores, changed, listed, lost, regained, counted, figures, both
            )
        )
    return read


def _missing_cells(behind: Floats, repeats: NDArray[np.int64], lost: Booleans) -> MissingCells | None:
    """Return the cells without a score; None where there are none. repeats: of each row. lost: to a provider."""
    missing = np.maximum(repeats[:, None] - behind, 0).astype(np.int32)
    if not missing.any():
        return None
    of_provider = np.where(lost, missing, 0).astype(np.int32)
    return MissingCells(behind.astype(np.int32), {"provider": of_provider, "failed": missing - of_provider})


def _figure_rows(
    sides: Sequence[scores.Scores], pairs: Pairs, metric: str, measure: Measure, numbers: Numbers
) -> FigureRows:
    """Return the cells of the earlier rows and, after them, of the later ones."""
    observed = (side.observed(metric, measure, numbers) for side in sides)
    earlier, later = (
        cells.rows(pairs.shape, pairs.rows[side], pairs.columns[side]) for side, cells in enumerate(observed) if cells
    )
    return FigureRows(numbers.figure, [*earlier.rows, *later.rows], pairs.shape[1])


def _figures(both: FigureRows, pairs: Pairs) -> FigureDifferences:
    """What is known of later rows less earlier ones, by a figure over all of their cells."""
    count = len(both.rows) // 2
    row_differences = [differences(both, count + row, [row], pairs.units, one_sided=True) for row in range(count)]
    nothing = [np.empty((0, pairs.shape[1])), np.empty((0, 2)), np.empty((0, 2))]
    return FigureDifferences(*(np.vstack(parts) for parts in zip(nothing, *row_differences, strict=True)))


def failing(failed: Outcomes, scored: Sequence[Scores]) -> tuple[Floats, Floats]:
    """By how much each cell fails in each sweep, 0 to 1: the share of its repeats, all of it where a score is lost."""
    before, after = failed.before.copy(), failed.after.copy()
    for pair_scores in scored:
        before[pair_scores.regained & np.isfinite(before)] = 1.0
        after[pair_scores.lost & np.isfinite(after)] = 1.0
    return before, after
