"""Waits for sweeps and executions, whoever runs them, and looks at how they stand."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

from wtb.config.broker import Broker, has_client
from wtb.config.stack_file import broker_url
from wtb.core.arguments import Seconds, checked
from wtb.core.frozen import frozen
from wtb.display.views.progress import Standing, Watch, crew
from wtb.execution.runtime.sweep_run import Ended
from wtb.execution.state import Progress, ended_cells
from wtb.operations.context import Context
from wtb.operations.running.local import ShowProgress
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.details import Target, find_target
from wtb.store.read.queries import find_sweep
from wtb.store.runs import leases

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
    # Looked for again: this raises the error of a sweep that is not there.
    if ended.status == _DELETED:
        find_target(context.database, ref)
    return ended


@frozen
class Look:
    """The state of a sweep or an execution at one look of somebody who waits for it.

    Attributes:
        progress: How far the sweep is.
        is_running: Whether it is pending or running, and continues by itself.
        ended: How it stands, or has ended.
    """

    progress: Progress
    is_running: bool
    ended: Ended


def wait_by(looks: Iterable[Look], pause_s: float, timeout: float | None, progress: ShowProgress | None) -> Ended:
    """Take looks until nothing is running, or the time is up.

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
        if not look.is_running or rest <= 0:
            break
        time.sleep(min(pause_s, rest))
    return ended


@checked
def looks(context: Context, ref: str, *, count: bool = True) -> Iterator[Look]:
    """Yield a look at a sweep or an execution each time that one is taken, until nothing of it runs any more.

    It never waits: who takes the looks waits between them.

    Args:
        context: As for `wait`.
        ref: A sweep or an execution, as for `wait`.
        count: Bring the counts up to date.

    Returns:
        The looks; the last one has `is_running` false.

    Raises:
        InputError: If there is no such sweep or execution.
    """
    target = find_target(context.database, ref)
    sweep = queries.find_sweep(context.database, target.id if target.kind == "sweep" else target.row.sweep_id)
    counts, absence = _Counts(context.database, sweep.id, sweep.cells), _Absence(context)
    while True:
        # In this order: the status of a sweep that ends between the two reads is the final one.
        runs = context.runs_here(sweep.id) or leases.runs_now(context.database, sweep)
        standing = _standing(context.database, target)
        is_open = standing.status in ("pending", "running") and runs
        if count:
            counts.refresh()
        yield Look(counts.progress, is_open, standing)
        if not is_open:
            return
        if sweep.queued:
            absence.look()


def _standing(database: Database, target: Target) -> Ended:
    """Return the present status of a sweep or an execution, with its reason."""
    if target.kind == "execution":
        row = queries.find_execution(database, target.id)
        return Ended(row.status, row.reason)
    return Ended(*leases.sweep_statuses(database, [target.id]).get(target.id, (_DELETED, None)))


class _Counts:
    """The progress of a sweep that workers run, in the form of one that runs here."""

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
        # A count of a large sweep takes long. The next one comes the later, so that the database has rest.
        took = time.monotonic() - began
        self._count_at = began + took + max(LOOK_S, took / COUNT_SHARE)


class _Absence:
    """Reports, once, that there has been no live worker for a while."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen = self._looked = time.monotonic()
        self._reported = False

    def look(self) -> None:
        now = time.monotonic()
        if self._reported or now - self._looked < 1.0:
            return
        self._looked = now
        # Only live workers count, and one that restarts is gone for a moment: hence the patience.
        if crew(self._context.database):
            self._seen = now
        elif now - self._seen >= PATIENCE_S:
            self._reported = True
            self._context.report("there is no worker any more; the sweep continues when there is one: wtb worker")


@checked
def watch(context: Context, ref: str | None = None) -> Watch:
    """Return what looks at how a sweep, or all open ones, stand, with workers and queues.

    Args:
        context: Where. The broker is asked, too, if one is named and its client is installed.
        ref: A sweep: its id, the beginning of it, or its name; None for all that are open.

    Returns:
        Its `look` returns how things stand as a document; what happens in a second is counted between two looks.

    Raises:
        InputError: If there is no such sweep, or the broker that was named cannot be used.
    """
    sweep_id = None if ref is None else str(find_sweep(context.database, ref).id)
    return Watch(Standing(context.database, sweep_id, _broker(context.broker)).read, sweep_id)


def _broker(url: str | None) -> Broker | None:
    named = broker_url(url)
    # Without an explicit URL the broker is optional, so a missing client is no error.
    if named is None or (url is None and not has_client()):
        return None
    return Broker(named, answer_s=1.0)
