"""Commands that look: list, status, show."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import existing_database, open_database, put, say, width
from wtb.cli.output import in_color, present, present_all, put_cells, value_or_plain
from wtb.config.stack_file import find_stack
from wtb.core.errors import InputError, did_you_mean
from wtb.core.status import CELL, SWEEP
from wtb.core.units import parse_duration
from wtb.display.text import sweeps
from wtb.display.text.admin import machine
from wtb.display.text.inspect import execution_status, executions
from wtb.display.views import execution_status as views
from wtb.display.views import executions as executions_views
from wtb.display.views import sweeps as sweeps_views
from wtb.operations import sweep as operations
from wtb.store.control import approvals
from wtb.store.limits import sessions
from wtb.store.read import details, queries

if TYPE_CHECKING:
    from wtb.store.database import Database

TABLE_CELLS = 100  # rows of a table of cells, unless --limit says otherwise


def list_(
    workflow: Annotated[str | None, typer.Option("--workflow", metavar="NAME", help="Only of this workflow.")] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only sweeps of this status, such as running.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Only of this project.")] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="NAME", help="Only those of a session \\[default: $WTB_SESSION, else all]."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only later ones: 30m, 12h, 2d, or an ISO date.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Single executions too, as `wtb start` makes them.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List sweeps, newest first.

    Several filters must all hold.

    Examples: wtb list --status paused  |  wtb list --since 2d --project search
    """
    filters = {"workflow": workflow, "status": _known(status, SWEEP, "status of a sweep"), "project": project}
    filters["session"] = session or os.environ.get("WTB_SESSION") or None
    after = None if since is None else time_of(since)
    database = existing_database(db)
    if database is not None and filters["session"] is not None:
        sessions.find_session(database, filters["session"])
    rows = [] if database is None else queries.list_sweeps(database, **filters, since=after, limit=limit, singles=all)
    found = [sweeps_views.sweep_document(row) for row in rows]
    is_chosen = any(filters.values()) or since
    nothing = "no sweep matches" if is_chosen else "there are no sweeps yet; `wtb init demo` makes a small one to run"
    present_all("sweeps", found, sweeps.listed, format, output, nothing)


def status(
    sweep: Annotated[
        str | None, typer.Argument(metavar="SWEEP|EXECUTION", help="Id, beginning of an id, or name (the newest).")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Show what `wtb up` runs in this folder.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Say how far a sweep or execution is, and what holds it up.

    It says who runs it, too, and how to go on.

    See also: `wtb watch` shows it live; `wtb show`, what it consists of; `wtb matrix`, what it found.

    Examples: wtb status nightly  |  wtb status --stack
    """
    if stack == (sweep is not None):
        raise InputError("name one sweep (`wtb list` shows them), or give --stack")
    if sweep is None:
        from wtb.hosting.stack.status import stack_document

        present(stack_document(find_stack()), machine.stack, format, output)
        return

    database = open_database(db)
    approvals.expire(database)
    kind, row = sweeps_views.find_target(database, sweep)
    if kind == "execution":
        present(views.standing_document(database, row), execution_status.standing, format, output)
        return
    present(sweeps_views.status_document(database, row), sweeps.status, format, output)


def show(
    what: options.SweepOrExecution,
    cells: Annotated[bool, typer.Option("--cells", help="The cells of a sweep.")] = False,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only cells of this status; may be given several times."),
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Only cells of the case with this id.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only cells that failed, or were set aside.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many cells.")] = None,
    calls: Annotated[bool, typer.Option("--calls", help="Model and tool calls of an execution.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show a sweep, its cells or one execution in detail.

    Of an execution it shows the path, attempts, output and state.

    See also: `wtb status` says how far it is; `wtb matrix` compares the combinations; `wtb history` shows checkpoints.

    Examples: wtb show nightly  |  wtb show nightly --cells --failed  |  wtb show EXECUTION --calls
    """
    database = open_database(db)
    cells = cells or bool(status or case or failed or limit)
    kind, row = (sweeps_views.find if cells else sweeps_views.find_target)(database, what)
    if kind == "execution":
        if cells:
            raise InputError(f"{what!r} is an execution; --cells and its filters are for sweeps")

        present(executions_views.execution_document(database, row, calls=calls), executions.execution, format, output)
    elif calls:
        raise InputError(f"{what!r} is a sweep; --calls is for one execution (`wtb show {what} --cells` lists them)")
    elif cells:
        statuses = [_known(one, CELL, "status of a cell") or "" for one in status or []]
        _show_cells(
            database, row, [*statuses, *(["failed", "set_aside"] if failed else [])], case, limit, format, output
        )
    else:
        present(sweeps_views.summary_document(database, row), sweeps.summary, format, output)


def _show_cells(
    database: Database,
    row: dict[str, Any],
    statuses: list[str],
    case: str | None,
    limit: int | None,
    format: options.Format,
    output: Path | None,
) -> None:
    _check_case(database, row["id"], case)
    if format is options.Format.json:
        found = operations.cell_documents(
            database, row["id"], statuses=statuses, case=case, limit=limit, read=value_or_plain
        )
        put_cells(found, output)
        return

    max_rows = limit or TABLE_CELLS
    shown = list(
        operations.cell_documents(
            database, row["id"], statuses=statuses, case=case, limit=max_rows + 1, read=value_or_plain
        )
    )
    if not shown:
        say("no cell matches")
        return
    vary = list(dict.fromkeys(node for choice in queries.choices(database, row["id"])[:1] for node in choice))
    metrics = [metric["name"] for metric in queries.metric_rows(database, row["id"])]
    put(sweeps.cells(shown[:max_rows], vary, metrics, width(), in_color(output)), output)
    if len(shown) > max_rows:
        say(f"only the first {max_rows:,}; more with --limit, all with --format json")


def _check_case(database: Database, sweep_id: str, case: str | None) -> None:
    if case is None:
        return
    found, near = details.case_ids(database, sweep_id, case)
    if not found:
        raise InputError(f"the sweep has no case {case!r}{did_you_mean(case, near)}")


def _known(name: str | None, known: Any, what: str) -> str | None:
    if name is not None and name not in known:
        raise InputError(f"{name!r} is not a {what}{did_you_mean(name, known)} (they are: {', '.join(known)})")
    return name


def time_of(text: str) -> float:
    """Seconds since the epoch for `2d`, `12h` or `30m` ago, or an ISO date or time (this machine's clock)."""
    try:
        if text.strip().endswith(("s", "m", "h", "d", "w")):
            return time.time() - parse_duration(text)
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise InputError(f"--since {text!r}: expected 30m, 12h, 2d, 1w, or a date such as 2026-01-31") from None
