"""Waiting for sweeps and executions, whoever runs them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Seconds
from wtb.core.classes.frozen import frozen
from wtb.display.views.progress import crew
from wtb.execution.runtime.sweep_run import Ended
from wtb.execution.state import Progress, ended_cells
from wtb.operations.context import Context
from wtb.operations.running.local import ShowProgress
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.references import Target, find_target
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

LOOK_S = 0.2  # between two looks at a sweep's status
COUNT_SHARE = 0.1  # of the time that counting its cells may take
_DELETED = "deleted"
PATIENCE_S = 5.0  # without a worker, before that is reported


@checked
def wait(context: Context, ref: str, *, timeout: Seconds | None = None, progress: ShowProgress | None = None) -> Ended:
    """Wait until a sweep or an execution ends, pauses or waits for a person. Ending the wait does not end the sweep.

    Args:
        context: Where; it is reported if workers run it and there is none any more.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        timeout: Seconds to wait at most; None for as long as it takes.
        progress: Called several times a second with how far the sweep is.

    Returns:
        How what was waited for ended, or stands when the time is up.

    Raises:
        InputError: If there is no such sweep or execution, or it was deleted meanwhile.
    """
    ended = wait_by(looks(context, ref, count=progress is not None), LOOK_S, timeout, progress)
    if ended.status == _DELETED:
        find_target(context.database, ref)
    return ended


@frozen
class Look:
    """What was seen of a sweep or an execution that somebody waits for.

    Attributes:
        progress: How far the sweep is.
        goes_on: Whether it will go on by itself.
        ended: How it stands, or has ended.
    """

    progress: Progress
    goes_on: bool
    ended: Ended


def wait_by(looks: Iterable[Look], pause_s: float, timeout: float | None, progress: ShowProgress | None) -> Ended:
    """Take looks until one says that nothing goes on any more.

    Args:
        looks: The looks.
        pause_s: Seconds between two of them.
        timeout: Seconds to wait at most; None for as long as it takes.
        progress: Called at each look with how far the sweep is.

    Returns:
        How it stands by the last of them.
    """
    ends = math.inf if timeout is None else time.monotonic() + timeout
    ended = Ended("pending")
    for look in looks:
        ended = look.ended
        if progress is not None:
            progress(look.progress)
        rest = ends - time.monotonic()
        if not look.goes_on or rest <= 0:
            break
        time.sleep(min(pause_s, rest))
    return ended


@checked
def looks(context: Context, ref: str, *, count: bool = True) -> Iterator[Look]:
    """Look at a sweep or an execution each time that a look is taken, until nothing runs of it any more.

    It never waits: who takes the looks waits between them.

    Args:
        context: As for `wait`.
        ref: A sweep or an execution, as for `wait`.
        count: Bring the counts up to date.

    Returns:
        The looks; the last one says that it does not go on.

    Raises:
        InputError: If there is no such sweep or execution.
    """
    target = find_target(context.database, ref)
    sweep = _sweep_of(context.database, target)
    counts, absence = _Counts(context.database, sweep.id, sweep.cells), _Absence(context)
    while True:
        standing = _standing(context.database, target)
        runs = context.runs_here(sweep.id) or leases.runs_now(context.database, sweep)
        is_open = standing.status in ("pending", "running") and runs
        if count:
            counts.refresh()
        yield Look(counts.progress, is_open, standing)
        if not is_open:
            return
        if sweep.queued:
            absence.look()


def _sweep_of(database: Database, target: Target) -> SweepRow:
    return queries.find_sweep(database, target.id if target.kind == "sweep" else target.row.sweep_id)


def _standing(database: Database, target: Target) -> Ended:
    """Return how it stands."""
    if target.kind == "execution":
        row = queries.find_execution(database, target.id)
        return Ended(row.status, row.reason)
    return Ended(*leases.sweep_statuses(database, [target.id]).get(target.id, (_DELETED, None)))


class _Counts:
    """A sweep that workers run, as progress is shown of one that runs here."""

    def __init__(self, database: Database, sweep_id: str, cells: int) -> None:
        self._database = database
        self.progress = Progress(cells, sweep_id)
        self._count_at = 0.0

    def refresh(self) -> None:
        """Bring the counts up to date, unless that would take too much of the time."""
        began = time.monotonic()
        if began < self._count_at:
            return
        now = self.progress
        ended = ended_cells(queries.cell_counts(self._database, now.sweep_id))
        now.succeeded, now.failed = ended["succeeded"], ended["failed"]
        now.node_runs, now.usd = queries.spent(self._database, now.sweep_id)
        took = time.monotonic() - began
        self._count_at = began + took + max(LOOK_S, took / COUNT_SHARE)


class _Absence:
    """Reports once that there has been no live worker for a while."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen = self._looked = time.monotonic()
        self._reported = False

    def look(self) -> None:
        now = time.monotonic()
        if self._reported or now - self._looked < 1.0:
            return
        self._looked = now
        if crew(self._context.database):
            self._seen = now
        elif now - self._seen >= PATIENCE_S:
            self._reported = True
            self._context.report("there is no worker any more; the sweep continues when there is one: wtb worker")
