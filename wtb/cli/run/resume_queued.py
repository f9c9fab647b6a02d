"""What `resume` and `retry` do with a sweep that workers run: requeue it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.authoring import graph
from wtb.cli import options
from wtb.cli.broker_notifier import BrokerNotifier
from wtb.cli.console import say
from wtb.cli.inspect.watch import wait_and_present
from wtb.cli.run.submit import check_format, put_id
from wtb.core.errors import ConflictError
from wtb.display.views import progress
from wtb.execution.runtime import code_drift, repair
from wtb.operations.control import pause_cancel
from wtb.store.control import executions, sweeps
from wtb.store.runs import retry, workers

if TYPE_CHECKING:
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

Row = Mapping[str, Any]

LET_GO_S = 15.0  # that workers get to end what they run of a paused sweep: nodes have a grace of 10 s
SEEN_S = 2.0  # in which every worker has seen that a sweep is paused; they look once a second


@dataclass(frozen=True)
class Settings:
    """What `resume` and `retry` were given, beside what they go on with.

    Attributes:
        limits: Other limits from now on, as in a sweep file.
        wait: Wait for the end, where workers run it.
        broker: URL; None for the one of the environment or of the stack.
        format: How to show the result.
        output: Where to write it; None for stdout.
        quiet: Show no progress.
    """

    limits: Mapping[str, Any]
    wait: bool
    broker: str | None
    format: options.MatrixFormat
    output: Path | None
    quiet: bool


def resume_queued(database: Database, row: Row, bound: Bound, settings: Settings, allow_code_change: bool) -> None:
    """Let workers go on with a sweep; with new limits from now on, and with the code as it is now where allowed."""
    check_format(settings.format, settings.wait)
    name, sweep_id = f"sweep {row['name']} ({row['id']})", row["id"]
    claimed = workers.count_claimed(database, sweep_id)
    under_way = row["status"] in ("pending", "running")
    if under_way and settings.limits:
        raise ConflictError(f"{name} is {row['status']}: `wtb pause {sweep_id}` first, then give it other limits")
    resumed = executions.resume_all(database, sweep_id, by=pause_cancel.user())
    if under_way and claimed and not resumed:
        say(f"workers run {name}, {claimed:,} executions just now: nothing to do; look on with: wtb watch {sweep_id}")
        _end(database, row, None, settings)
        return
    notifier = _checked_notifier(settings)
    code_drift.accept_code(database, row, bound, allow=allow_code_change)
    if settings.limits:
        claimed = _let_workers_see(database, sweep_id)
    if not claimed:
        repair.repair_sweep(database, row)
        requeue(database, sweep_id, bound)
    sweeps.go_on(database, sweep_id, by=pause_cancel.user(), limits=settings.limits)
    say(f"{name} goes on")
    _end(database, row, notifier, settings)


def retry_queued(database: Database, row: Row, bound: Bound, settings: Settings, statuses: Sequence[str]) -> None:
    """Have workers run cells again, with the code as it is now."""
    check_format(settings.format, settings.wait)
    name, sweep_id = f"sweep {row['name']} ({row['id']})", row["id"]
    if workers.count_claimed(database, sweep_id):
        raise ConflictError(f"workers still run {name}: wait for its end (`wtb watch {sweep_id}`), or pause it first")
    notifier = _checked_notifier(settings)
    cells = retry.retry(database, sweep_id, statuses)
    if not cells:
        say(f"{name} has no cells to retry")
        _end(database, row, None, settings)
        return
    accept_present_code(database, row, bound)
    requeue(database, sweep_id, bound)
    sweeps.go_on(database, sweep_id, by=pause_cancel.user(), limits=settings.limits)
    say(f"{name}: {cells:,} cells again")
    _end(database, row, notifier, settings)


def _checked_notifier(settings: Settings) -> BrokerNotifier:
    notifier = BrokerNotifier(settings.broker)
    notifier.check()
    return notifier


def accept_present_code(database: Database, sweep: Row, bound: Bound) -> None:
    """Record the code that is there now, and report what has changed."""
    for node, variant in code_drift.accept_code(database, sweep, bound, allow=True):
        say(f"the code of {node}={variant} has changed; the matrix says where results are mixed")


def requeue(database: Database, sweep_id: str, bound: Bound) -> None:
    """Send what a retry made to the queues that its next nodes ask for."""
    workflow = bound.workflow
    sweeps.requeue(
        database, sweep_id, lambda nodes: graph.queue_of(workflow, workflow.entries if nodes is None else nodes)
    )


def _let_workers_see(database: Database, sweep_id: str) -> int:
    """Wait until every worker has seen that a sweep is paused, so that none goes on under its old limits.

    Returns how many executions workers still have. Raises ConflictError if they do not release them.
    """
    ends = time.monotonic() + LET_GO_S
    while (claimed := workers.count_claimed(database, sweep_id)) or sweeps.stands_still_for(
        database, sweep_id
    ) < SEEN_S:
        if time.monotonic() > ends:
            if claimed:
                raise ConflictError(
                    f"sweep {sweep_id}: {claimed:,} executions are still being ended by workers; try again in a moment"
                )
            break
        time.sleep(0.1)
    return claimed


def _end(database: Database, row: Row, notifier: BrokerNotifier | None, settings: Settings) -> None:
    """Notify workers, then wait for the end or return at once."""
    problem = None if notifier is None else notifier.notify_pending(database)
    if problem is not None:
        say(f"{problem}; it starts when the broker is back")
    if settings.wait:
        wait_and_present(database, row["id"], settings.format, settings.output, settings.quiet)
    else:
        count = len(progress.crew(database))
        started = problem is None and count > 0
        put_id(row["id"], row["name"], row["cells"], count, started, settings.format, settings.output)
