"""Commands that look at several sweeps, or at how far one is: list, status."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import existing_backend, open_backend
from wtb.cli.output import present, present_all
from wtb.core.errors import InputError
from wtb.core.units import parse_duration
from wtb.display.text import sweeps
from wtb.operations.inspection import sweeps as operations


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
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="At most this many.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="The next page: only what is older than this one.")
    ] = None,
    singles: Annotated[bool, typer.Option("--all", help="Single executions too, as `wtb start` makes them.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Single executions only, with what they failed by.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List sweeps, newest first.

    Several filters must all hold. The status of a single execution is its own, such as failed or waiting.

    Examples: wtb list --status paused  |  wtb list --since 2d --project search  |  wtb list --runs --status failed
    """
    if runs and singles:
        raise InputError("--runs lists single executions only, and --all sweeps as well; give one of them")
    filters = {"workflow": workflow, "status": status, "project": project}
    filters["session"] = os.environ.get("WTB_SESSION") or None if session is None else session
    chosen: dict[str, Any] = {**filters, "limit": limit, "after": after}
    chosen["since"] = None if since is None else time_of(since)
    if status is not None:  # also where there is no database yet
        operations.check_run_status(status) if runs else operations.check_sweep_status(status, singles=singles)
    backend = existing_backend(db)
    is_chosen = any(filters.values()) or since or after
    if runs:
        listed = [] if backend is None else backend.call(operations.list_runs, **chosen)
        nothing = "no run matches" if is_chosen else "there are no runs yet; `wtb start` makes one"
        present_all("runs", listed, sweeps.listed_runs, format, output, nothing)
        return
    found = [] if backend is None else backend.call(operations.list_sweeps, **chosen, singles=singles)
    nothing = "no sweep matches" if is_chosen else "there are no sweeps yet; `wtb init demo` makes a small one to run"
    present_all("sweeps", found, sweeps.listed, format, output, nothing)


def status(
    ref: Annotated[
        str | None, typer.Argument(metavar="SWEEP|EXECUTION", help="Id, beginning of an id, or name (the newest).")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Show what `wtb up` runs in this folder.")] = False,
    cases: Annotated[
        int, typer.Option("--cases", metavar="N", help="List so many cases of each cause of failures, at most 100.")
    ] = 0,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Say how far a sweep or execution is, and what holds it up.

    It says who runs it, too, and how to go on.

    See also: `wtb watch` shows it live; `wtb show`, what it consists of; `wtb matrix`, what it found.

    Examples: wtb status nightly  |  wtb status nightly --cases 20  |  wtb status --stack
    """
    if stack == (ref is not None):
        raise InputError("name one sweep (`wtb list` shows them), or give --stack")
    if ref is None:
        from wtb.config.stack_file import find_stack
        from wtb.display.text.admin import machine
        from wtb.hosting.stack.status import stack_document

        present(stack_document(find_stack()), machine.stack, format, output)
        return

    found = open_backend(db).call(operations.status, ref, cases=cases)
    render: Callable[[Any, int, bool], str] = sweeps.status
    if "execution" in found:
        from wtb.display.text.inspect import execution_status

        render = execution_status.standing
    present(found, render, format, output)


def time_of(text: str, option: str = "--since") -> datetime:
    """Return when `2d`, `12h` or `30m` ago was, or an ISO date or time, by this machine's clock. Raises InputError."""
    try:
        if text.strip().endswith(("s", "m", "h", "d", "w")):
            return datetime.fromtimestamp(time.time() - parse_duration(text), UTC)
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise InputError(f"{option} {text!r}: expected 30m, 12h, 2d, 1w, or a date such as 2026-01-31") from None
