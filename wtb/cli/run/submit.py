"""The command `submit`: sweeps that workers run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.analysis import gates
from wtb.authoring import breakpoints
from wtb.cli import options
from wtb.cli.admin.workers import shared_database
from wtb.cli.broker_notifier import BrokerNotifier
from wtb.cli.console import as_json, prints_to_stderr, put, say
from wtb.cli.inspect import watch
from wtb.cli.run.sweeps import only, prepare
from wtb.core.errors import BrokerError, InputError
from wtb.core.texts import plural
from wtb.display.views import progress
from wtb.store.files import locations

if TYPE_CHECKING:
    from wtb.planning.prepare import Prepared
    from wtb.store.database import Database

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for its end, then show its matrix.")]
ResultFormat = Annotated[
    options.MatrixFormat, typer.Option("--format", "-f", help="How to show it; without --wait table or json.")
]


def submit(
    file: options.SweepFile,
    wait: WaitOption = False,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            min=-1000,
            max=1000,
            help="Higher ones run first \\[default: the file's, else 0].",
        ),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also where no worker is there to run it.")] = False,
    limit: options.Limit = None,
    case: options.Case = None,
    combination: options.Combination = None,
    max_cells: options.MaxCells = None,
    breaks: options.Breaks = None,
    final: options.Final = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    format: ResultFormat = options.MatrixFormat.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Give a sweep to the workers, and print its id.

    It is submitted whole or not at all, after the checks of `wtb run`. A broker that is down holds up the
    start, not the submission.

    See also: `wtb watch` shows how it goes on; `wtb matrix`, what it found.

    Examples: wtb submit sweep.yaml  |  wtb submit sweep.yaml --wait --format json -o matrix.json
    """

    check_format(format, wait)
    prepared = prepare(file, only(limit, case, combination, final), max_cells, session)
    places = breakpoints.stops(prepared.bound.workflow, breaks or ())
    notifier = BrokerNotifier(broker)
    database = shared_database(db)
    gates.check_gates(database, prepared.bound.spec)
    workers = _check_workers(database, prepared, anyway)
    workspaces = locations.workspaces_of(database)
    locations.check_files(database, workspaces)
    _check_broker(notifier, anyway)
    spec = prepared.bound.spec
    chosen = spec.run.priority if priority is None else priority
    with watch.interruptible() if wait else nullcontext():
        with prints_to_stderr():  # cases may come from user code
            sweep_id = prepared.submit(database, workspaces, queued=True, priority=chosen, breakpoints=places)

        def notify() -> bool:
            what = f"sweep {spec.sweep} ({sweep_id}): {prepared.cells:,} cells"
            return _notify_and_say(database, notifier, what, workers, quiet)

        if wait:
            watch.wait_and_present(database, sweep_id, format, output, quiet, first=notify)
        else:
            put_id(sweep_id, spec.sweep, prepared.cells, workers, notify(), format, output)


def _notify_and_say(database: Database, notifier: BrokerNotifier, what: str, workers: int, quiet: bool) -> bool:
    """Notify workers, and say when the sweep starts. Returns True if it starts at once."""
    problem = notifier.notify_pending(database)
    if not quiet:
        say(f"{what}; {plural(workers, 'worker')} to run it")
    if problem is not None:
        say(f"{problem}; the sweep is accepted, and starts when the broker is back")
    elif not workers:
        say("it starts when there is a worker")
    return problem is None and workers > 0


def _check_workers(database: Database, prepared: Prepared, anyway: bool) -> int:
    """How many workers take from the queues of a sweep. Raises BrokerError where one of them has none."""
    found = progress.crew(database)
    missing = progress.without_worker(prepared.queues, found)
    if missing and not anyway:
        names = ", ".join(map(repr, missing))
        commands = ", ".join(f"`{progress.worker_command(queue)}`" for queue in missing)
        raise BrokerError(
            f"no worker takes from the queue{'s'[: len(missing) > 1]} {names}, so nothing was submitted: start one "
            f"with {commands}, or give --anyway to have the sweep wait for one"
        )
    queues = set(map(progress.shown_queue, prepared.queues))
    return sum(not queues.isdisjoint(worker["queues"]) for worker in found)


def _check_broker(notifier: BrokerNotifier, anyway: bool) -> None:
    """Wait until the broker answers, or will not. Raises BrokerError where none is named, InputError as `check`."""
    notifier.check()
    problem = notifier.problem()
    if notifier.url is None and problem is not None and not anyway:
        raise BrokerError(f"{problem}; nothing was submitted")


def check_format(format: options.MatrixFormat, wait: bool) -> None:
    if not wait and format not in (options.MatrixFormat.table, options.MatrixFormat.json):
        raise InputError(f"--format {format.value} is for a matrix, which there is at the end: give --wait, too")


def put_id(
    sweep_id: str, name: str, cells: int, workers: int, started: bool, format: options.MatrixFormat, output: Path | None
) -> None:
    """The result of what returns at once: the sweep's id, or a document about it."""
    document: dict[str, Any] = {"sweep": sweep_id, "name": name, "cells": cells, "started": started, "workers": workers}
    put(as_json(document) if format is options.MatrixFormat.json else sweep_id, output)
