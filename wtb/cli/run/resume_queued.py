"""What `resume` and `retry` do with a sweep that workers run: hand it back to them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtb.authoring.graph import queue_of
from wtb.cli.console import MatrixFormat, say
from wtb.config.stack_file import broker_url
from wtb.core.errors import ConflictError
from wtb.display.views.progress import crew
from wtb.execution.runtime.code_drift import accept_code
from wtb.execution.runtime.repair import repair_sweep
from wtb.operations.control.pause_cancel import user
from wtb.store.control import executions, sweeps
from wtb.store.runs import workers
from wtb.store.runs.retry import retry as retry_cells

if TYPE_CHECKING:
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

Row = Mapping[str, Any]

LET_GO_S = 15.0  # that workers get to end what they run of a paused sweep: nodes have a grace of 10 s
SEEN_S = 2.0  # in which every worker has seen that a sweep is paused; they look once a second


def resume_queued(
    database: Database,
    row: Row,
    bound: Bound,
    limits: Mapping[str, Any],
    allow_code_change: bool,
    broker: str | None,
    wait: bool,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    """Let workers go on with a sweep; with new limits from now on, and with the code as it is now where allowed."""
    from wtb.cli.broker_notifier import BrokerNotifier
    from wtb.cli.run.submit import check_format

    check_format(format, wait)
    name, sweep_id = f"sweep {row['name']} ({row['id']})", row["id"]
    held = workers.count_claimed(database, sweep_id)
    under_way = row["status"] in ("pending", "running")
    if under_way and limits:
        raise ConflictError(f"{name} is {row['status']}: `wtb pause {sweep_id}` first, then give it other limits")
    resumed = executions.resume_all(database, sweep_id, by=user())
    if under_way and held and not resumed:
        say(f"workers run {name}, {held:,} executions just now: nothing to do; look on with: wtb watch {sweep_id}")
        _end(database, row, None, wait, format, output, quiet)
        return
    notifier = BrokerNotifier(broker_url(broker))
    notifier.check()
    accept_code(database, row, bound, allow=allow_code_change)
    if limits:
        held = _let_workers_see(database, sweep_id)
    if not held:
        repair_sweep(database, row)
        requeue(database, sweep_id, bound)
    sweeps.go_on(database, sweep_id, by=user(), limits=limits)
    say(f"{name} goes on")
    _end(database, row, notifier, wait, format, output, quiet)


def retry_queued(
    database: Database,
    row: Row,
    bound: Bound,
    limits: Mapping[str, Any],
    statuses: Sequence[str],
    broker: str | None,
    wait: bool,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    """Have workers run cells again, with the code as it is now."""
    from wtb.cli.broker_notifier import BrokerNotifier
    from wtb.cli.run.submit import check_format

    check_format(format, wait)
    name, sweep_id = f"sweep {row['name']} ({row['id']})", row["id"]
    if workers.count_claimed(database, sweep_id):
        raise ConflictError(f"workers still run {name}: wait for its end (`wtb watch {sweep_id}`), or pause it first")
    notifier = BrokerNotifier(broker_url(broker))
    notifier.check()
    cells = retry_cells(database, sweep_id, statuses)
    if not cells:
        say(f"{name} has no cells to retry")
        _end(database, row, None, wait, format, output, quiet)
        return
    for node, variant in accept_code(database, row, bound, allow=True):
        say(f"the code of {node}={variant} has changed; the matrix says where results are mixed")
    requeue(database, sweep_id, bound)
    sweeps.go_on(database, sweep_id, by=user(), limits=limits)
    say(f"{name}: {cells:,} cells again")
    _end(database, row, notifier, wait, format, output, quiet)


def requeue(database: Database, sweep_id: str, bound: Bound) -> None:
    """Send what a retry made to the queues that its next nodes ask for."""
    workflow = bound.workflow
    sweeps.requeue(database, sweep_id, lambda nodes: queue_of(workflow, workflow.entries if nodes is None else nodes))


def _let_workers_see(database: Database, sweep_id: str) -> int:
    """Wait until every worker has seen that a sweep is paused, so that none goes on under its old limits.

    Returns how many executions are held still. Raises ConflictError where workers do not let go of them.
    """
    ends = time.monotonic() + LET_GO_S
    while (held := workers.count_claimed(database, sweep_id)) or sweeps.stands_still_for(database, sweep_id) < SEEN_S:
        if time.monotonic() > ends:
            if held:
                raise ConflictError(
                    f"sweep {sweep_id}: {held:,} executions are still being ended by workers; try again in a moment"
                )
            break
        time.sleep(0.1)
    return held


def _end(
    database: Database,
    row: Row,
    notifier: Any,
    wait: bool,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    """Notify workers, then wait for the end or return at once."""
    from wtb.cli.inspect.watch import wait_and_present
    from wtb.cli.run.submit import notify_workers, put_id

    problem = None if notifier is None else notify_workers(database, notifier)
    if problem is not None:
        say(f"{problem}; it starts when the broker is back")
    if wait:
        wait_and_present(database, row["id"], format, output, quiet)
    else:
        found = len(crew(database))
        put_id(row["id"], row["name"], row["cells"], found, problem is None and found > 0, format, output)
