"""Looks at a sweep before its planned end, and the figures that are valid for them.

Figures of the end are valid for a sweep that ran as planned: its number of cases was decided before any result was
seen. In every other state (running, paused, cancelled, stopped because enough was known), somebody may have stopped the
sweep, or may yet stop it, because of its results. Then `wtb.analysis.statistics.running` has figures that are valid
whenever one looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.comparing import Design, Lead
from wtb.analysis.statistics.intervals import Units, numbered
from wtb.analysis.statistics.running import Look, finished_first, look
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import Measure
from wtb.core.scoring.scores import Scale
from wtb.core.status import FINAL_CELLS
from wtb.core.stop import ENOUGH_KNOWN
from wtb.core.tree.run_order import case_order
from wtb.core.tree.stored_spec import StoredSpec, additions, first_cases
from wtb.store.control.stopped import stopped_of
from wtb.store.database import Database
from wtb.store.read import aggregates, evidence
from wtb.store.read.aggregates import CellGroup
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import AsOf


_AT_THE_END = "a figure over all cells of a row is known only at the end"
# What a cell takes is at most what the limits of its sweep allow.
_LIMITS: Mapping[str, Literal["usd", "tokens", "node_runs", "cell_timeout"]] = {
    "cost": "usd",
    "tokens": "tokens",
    "node_runs": "node_runs",
    "latency": "cell_timeout",
}
_SAYS = {
    "pending": "the sweep has not begun",
    "running": "the sweep is running",
    "paused": "the sweep is paused",
    "cancelled": "the sweep was cancelled",
    "failed": "the sweep failed",
}


def why_anytime(status: str, reason: str | None, unfinished: int, dropped: int) -> str | None:
    """Return the reason why figures must be valid at any time; None if the sweep ended as planned.

    Args:
        status: The status of the sweep.
        reason: The reason of that status, if it has one.
        unfinished: How many of its cells have no outcome.
        dropped: How many cells were cancelled or skipped, other than by an answer to their own question.
    """
    if status != "completed":
        return _SAYS[status]
    # A sweep that stopped by itself has the status `completed`, too, but its results decided when it ended.
    if (reason or "").startswith(ENOUGH_KNOWN):
        return "the sweep stopped when enough was known"
    if unfinished:
        return f"{unfinished:,} cell{' is' if unfinished == 1 else 's are'} to run again"
    if dropped:
        return f"{dropped:,} cell{' was' if dropped == 1 else 's were'} cancelled or skipped"
    return None


def why_stopped(sweep: SweepRow) -> str | None:
    """Return the reason why a sweep did not end as planned; None if it did, whatever became of single cells.

    Tests that assume a number of cases decided beforehand are not valid for a sweep that stopped early.
    """
    return why_anytime(sweep.status, sweep.reason, 0, 0)


def because(sweep: SweepRow, cells: Iterable[CellGroup], stopped: Collection[int] = ()) -> str | None:
    """Return the same for a sweep and its cells, without rows that were added later.

    Args:
        sweep: Its row.
        cells: All of its cells, counted by outcome.
        stopped: The numbers of rows that somebody stopped, which are not ranked.
    """
    added = additions(sweep.spec)
    planned = [
        group
        for group in cells
        if (not added or group.combination < added[0].combination) and group.combination not in stopped
    ]
    unfinished = sum(group.cells for group in planned if group.status not in FINAL_CELLS)
    dropped = sum(group.cells for group in planned if group.dropped)
    if any(group.final for group in added):  # it had come to its end, and runs again for these only
        return why_anytime("completed", None, unfinished, dropped)
    return why_anytime(sweep.status, sweep.reason, unfinished, dropped)


def bounds(metric: str, measure: Measure, spec: StoredSpec) -> Scale | None:
    """Return the bounds of a metric's scores: its scale, or the sweep's limit for a cell.

    The largest score that was seen bounds nothing.
    """
    limit = _LIMITS.get(metric)
    largest = None if limit is None else spec.get("limits", {}).get(limit)
    # A largest score that was merely seen is no bound: the intervals would be valid only in hindsight.
    return measure.scale or (None if largest is None else (0.0, float(largest)))


@frozen
class View:
    """The part of a sweep that a look before its end may use: cases in their starting order, and their finished cells.

    Attributes:
        because: Why the sweep has not ended as planned.
        order: The numbers of the cases, in the order in which they start.
        finished: Combinations x cases in that order.
        units: The cluster of each case; None if no case has one.
    """

    because: str
    order: NDArray[np.int64]
    finished: NDArray[np.bool_]
    units: Units

    @property
    def as_of(self) -> AsOf:
        """Document `as_of`: over how many of the cases combinations are compared, and why not over all."""
        whole = finished_first(self.finished, self.units)
        return {"cases": int(whole.all(axis=0).sum()), "of": len(self.order), "because": self.because}

    def rows(self) -> list[int]:
        """Return how many of the first cases the figures of each combination cover."""
        counts: list[int] = finished_first(self.finished, self.units).sum(axis=1).tolist()
        return counts

    def look(
        self,
        scores: Floats,
        cases: NDArray[np.int64],
        design: Design,
        scale: Scale | None,
        *,
        margin: float | None = None,
        compared_rows: Sequence[int] | None = None,
    ) -> Look:
        """Estimate the combinations under one metric.

        Args:
            scores: Combinations x cases.
            cases: The number of the case of each column.
            design: As for `compare`, but for the order of the cases.
            scale: Bounds that no score can exceed.
            margin: As for `running.look`.
            compared_rows: As for `running.look`.

        Returns:
            The estimates. Figures over all cells of a row have none before the end.
        """
        if design.figure is not None:
            scores = np.full_like(scores, np.nan)
        if scale is not None and (scores > scale[1]).any():
            scale = None  # what was spent beyond a limit shows that it is no bound
        place = np.full(int(max(self.order.max(initial=-1), cases.max(initial=-1))) + 1, -1, dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        # Columns go to the places of their cases in starting order: only a prefix of that order is free of the bias
        # that fast cases finish first.
        ordered = np.full(self.finished.shape, np.nan)
        ordered[:, place[cases]] = scores[:, : len(cases)]
        expected = np.zeros(len(self.order), dtype=np.bool_)
        expected[place[cases]] = True
        missing = design.missing and design.missing.at(place[cases], len(self.order))
        design = replace(design, units=self.units, missing=missing)
        estimated = look(
            ordered, self.finished, design, scale=scale, expected=expected, margin=margin, compared_rows=compared_rows
        )
        if design.figure is None:
            return estimated
        return replace(estimated, compared=replace(estimated.compared, lead=Lead(because=_AT_THE_END)), interval=None)


def view(database: Database, sweep: SweepRow, combinations: int, cells: Iterable[CellGroup]) -> View | None:
    """Return the part of a sweep that can be used now; None if the sweep ended as planned.

    Read this before the scores, because a cell has scores as soon as it has finished.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        combinations: How many rows were planned, which come first.
        cells: All cells of the sweep, counted by outcome.
    """
    stopped = list(stopped_of(database, sweep.id))
    why = because(sweep, cells, stopped)
    if why is None:
        return None
    numbers = aggregates.case_numbers(database, sweep.id)
    clusters = evidence.clusters(database, sweep.id)
    names = [clusters.get(number) for number in numbers]
    firsts = np.searchsorted(numbers, first_cases(sweep.spec)).tolist()
    # The order depends on the seed and the clusters only, so a prefix of it is a random sample whatever the results.
    order = case_order(names, sweep.spec.get("seed", 0), firsts)
    finished = np.ones((combinations, len(numbers)), dtype=np.bool_)
    place = np.empty(len(numbers), dtype=np.int64)
    place[order] = np.arange(len(order))
    for part in aggregates.open_cells(database, sweep.id, cancelled=sweep.status != "completed"):
        rows, cases = (np.array(column, dtype=np.int64) for column in part)
        planned = (rows < combinations) & ~np.isin(rows, stopped)  # not of rows that were added since
        finished[rows[planned], place[np.searchsorted(numbers, cases[planned])]] = False
    units = numbered([names[index] for index in order])
    return View(why, np.array(numbers, dtype=np.int64)[order], finished, units)
