"""Whether figures of a sweep are those of its end or of a look at it before, and what such a look may see.

Figures of the end hold for a sweep that ran as planned: how many cases it has was decided before any result was seen.
Whatever else it is (running, paused, cancelled, stopped since enough was known) somebody may have stopped it, or may
yet, because of what it showed. Then `wtb.analysis.statistics.sequential.running` says what holds whenever one looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.comparing import Design, Lead
from wtb.analysis.statistics.sequential.running import Look, finished_first, look
from wtb.analysis.statistics.units import Units, numbered
from wtb.core.classes.frozen import frozen
from wtb.core.scoring.measure import Measure
from wtb.core.scoring.scales import Scale
from wtb.core.status import FINAL_CELLS
from wtb.core.stop import ENOUGH_KNOWN
from wtb.core.tree.added_rows import additions
from wtb.core.tree.extensions import first_cases
from wtb.core.tree.run_order import case_order
from wtb.core.tree.stored_spec import StoredSpec
from wtb.store.database import Database
from wtb.store.growth.stopped import stopped_of
from wtb.store.read import aggregates, outcomes
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
    """Why figures of a sweep are to hold however often one looked; None where those of its end do.

    Args:
        status, reason: of the sweep.
        unfinished: how many of its cells have no outcome.
        dropped: how many were cancelled or skipped, other than by an answer to their own question.
    """
    if status != "completed":
        return _SAYS[status]
    if (reason or "").startswith(ENOUGH_KNOWN):
        return "the sweep stopped when enough was known"
    if unfinished:
        return f"{unfinished:,} cell{' is' if unfinished == 1 else 's are'} to run again"
    if dropped:
        return f"{dropped:,} cell{' was' if dropped == 1 else 's were'} cancelled or skipped"
    return None


def why_stopped(sweep: SweepRow) -> str | None:
    """Why a sweep did not come to its end as planned, given its row; None where it did, whatever became of some cells.

    Tests that suppose a number of cases that was decided beforehand say nothing of one that did not.
    """
    return why_anytime(sweep.status, sweep.reason, 0, 0)


def because(sweep: SweepRow, cells: Iterable[CellGroup], stopped: Collection[int] = ()) -> str | None:
    """The same of a sweep, given its cells: of what was planned, whatever becomes of rows that were added since.

    stopped: the numbers of rows that somebody stopped, which are not ranked.
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
    """Return the scores that a metric cannot pass: its scale, or what a limit of the sweep allows a cell.

    The largest score that was seen bounds nothing.
    """
    limit = _LIMITS.get(metric)
    largest = None if limit is None else spec.get("limits", {}).get(limit)
    return measure.scale or (None if largest is None else (0.0, float(largest)))


@frozen
class View:
    """What a look before the end may see: cases in the order in which they begin, and which cells have finished.

    Attributes:
        because: why it is not the end.
        order: numbers of cases.
        finished: combinations x cases in that order.
        units: the cluster of each; None where no case has one.
    """

    because: str
    order: NDArray[np.int64]
    finished: NDArray[np.bool_]
    units: Units

    @property
    def as_of(self) -> AsOf:
        """`as_of` of the JSON contract: over how many of the cases combinations are compared, and why not over all."""
        whole = finished_first(self.finished, self.units)
        return {"cases": int(whole.all(axis=0).sum()), "of": len(self.order), "because": self.because}

    def rows(self) -> list[int]:
        """Over how many of the first cases the figures of each combination are."""
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
        """Estimates under one metric.

        scores: combinations x cases. cases: the number of the case of each column. design: as for `compare`, but for
        the order of the cases. scale: what no score can pass. Of figures over all cells of a row only the end tells.
        margin, over: as for `running.look`.
        """
        if design.figure is not None:
            scores = np.full_like(scores, np.nan)
        if scale is not None and (scores > scale[1]).any():
            scale = None  # what was spent beyond a limit shows that it is no bound
        place = np.full(int(max(self.order.max(initial=-1), cases.max(initial=-1))) + 1, -1, dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
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
    """What may be seen of a sweep just now; None where it has come to its end as planned.

    combinations: how many were planned, which come first. cells: all of its cells. To be read before its scores: a
    cell has these as soon as it has finished.
    """
    stopped = list(stopped_of(database, sweep.id))
    why = because(sweep, cells, stopped)
    if why is None:
        return None
    numbers = aggregates.case_numbers(database, sweep.id)
    clusters = outcomes.clusters(database, sweep.id)
    names = [clusters.get(number) for number in numbers]
    firsts = np.searchsorted(numbers, first_cases(sweep.spec)).tolist()
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
