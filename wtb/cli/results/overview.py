"""Commands that look at several sweeps, or at how far one is: list, status."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import existing_backend, open_backend
from wtb.cli.options import time_of
from wtb.cli.output import present, present_all
from wtb.core.errors import InputError
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
        str | None, typer.Option("--since", metavar="WHEN", help="Only newer ones: 30m, 12h, 2d, or an ISO date.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Maximum number.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="ID", help="Only entries older than this one, for the next page.")
    ] = None,
    singles: Annotated[bool, typer.Option("--all", help="Include single executions, as of `wtb start`.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Only single executions, with causes of failures.")] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List sweeps, newest first.

    Several filters must all hold. The status of a single execution is its own, such as failed or waiting.

    Examples: wtb list --status paused  |  wtb list --since 2d --project search  |  wtb list --runs --status failed
    """
    if runs and singles:
        raise InputError("--runs lists single executions only, and --all sweeps as well; give one of them")
    filters = {"workflow": workflow, "status": status, "project": project}
    filters["session"] = os.environ.get("WTB_SESSION") or None if session is None else session
    query: dict[str, Any] = {**filters, "limit": limit, "after": after}
    query["since"] = None if since is None else time_of(since)
    # Checked here as well, so that a misspelt status fails even if there is no database yet.
    if status is not None:
        operations.check_run_status(status) if runs else operations.check_sweep_status(status, singles=singles)
    backend = existing_backend(db)
    is_chosen = any(filters.values()) or since or after
    if runs:
        listed = [] if backend is None else backend.call(operations.list_runs, **query)
        nothing = "no run matches" if is_chosen else "there are no runs yet; `wtb start` makes one"
        present_all("runs", listed, sweeps.listed_runs, form, nothing)
        return
    listed_sweeps = [] if backend is None else backend.call(operations.list_sweeps, **query, singles=singles)
    nothing = "no sweep matches" if is_chosen else "there are no sweeps yet; `wtb init demo` makes a small one to run"
    present_all("sweeps", listed_sweeps, sweeps.listed, form, nothing)


def status(
    ref: Annotated[
        str | None, typer.Argument(metavar="SWEEP|EXECUTION", help="Id, beginning of an id, or name (the newest).")
    ] = None,
    stack: Annotated[bool, typer.Option("--stack", help="Show what `wtb up` runs in this folder.")] = False,
    cases: Annotated[
        int, typer.Option("--cases", metavar="N", help="Cases to list for each cause of failures, at most 100.")
    ] = 0,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Show how far a sweep or execution is, and what blocks it.

    It also shows what runs it, and how to continue.

    See also: `wtb watch` shows it live; `wtb show`, its parts; `wtb matrix`, its results.

    Examples: wtb status nightly  |  wtb status nightly --cases 20  |  wtb status --stack
    """
    if stack == (ref is not None):
        raise InputError("no sweep is named; name one (`wtb list` shows them), or give --stack")
    if ref is None:
        from wtb.config.stack_file import find_stack
        from wtb.display.text import administration
        from wtb.hosting.servers.background import stack_document

        present(stack_document(find_stack()), administration.stack, form)
        return

    document = open_backend(db).call(operations.status, ref, cases=cases)
    render: Callable[[Any, int, bool], str] = sweeps.status
    if "execution" in document:
        from wtb.display.text import executions

        render = executions.standing
    present(document, render, form)
