"""Sweeps, their cells and single executions: lists, statuses and details.

Each function imports only what it needs, because imports take longer than most queries.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Annotated, get_args

from wtb.core.arguments import Count, Number, checked
from wtb.core.documents.executions import ExecutionDocument, OutcomeDocument, StandingDocument
from wtb.core.documents.shared_types import RunStatus
from wtb.core.documents.sweeps import CellDocument, RunDocument, StatusDocument, SummaryDocument, SweepDocument
from wtb.core.errors import InputError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.status import CELL, HIDDEN_SWEEPS, SWEEP
from wtb.display.views.listed import run_document, sweep_document
from wtb.operations.context import Context
from wtb.store.access.sessions import find_session
from wtb.store.read import details, queries
from wtb.store.read.details import find, find_one, find_target
from wtb.store.tables.sweeps import SweepRow

ListedCases = Annotated[int, Number(0, 100, whole=True)]


@checked
def list_sweeps(
    context: Context,
    *,
    workflow: str | None = None,
    status: str | None = None,
    project: str | None = None,
    session: str | None = None,
    since: datetime | None = None,
    limit: Count | None = None,
    after: str | None = None,
    singles: bool = False,
) -> list[SweepDocument]:
    """List sweeps, the newest first.

    Args:
        context: Where.
        workflow: Only of the workflow of this name.
        status: Only of this status, such as `running`.
        project: Only of this project.
        session: Only of this session; by default the context's, or all.
        since: Only those that were submitted then or later.
        limit: Maximum number.
        after: Only those that were submitted before this one, the last of the page before.
        singles: Single executions, too; their status is that of their execution.

    Returns:
        A document for each: what it is, its status and its cells by status.

    Raises:
        InputError: If there is no such status or session.
    """
    if status is not None:
        check_sweep_status(status, singles=singles)
    rows = queries.list_sweeps(
        context.database,
        workflow=workflow,
        status=status,
        project=project,
        session=_session(context, session),
        since=None if since is None else since.timestamp(),
        limit=limit,
        kind=None if singles else "sweep",
        after=_last(context, after),
    )
    return [sweep_document(row) for row in rows]


@checked
def list_runs(
    context: Context,
    *,
    workflow: str | None = None,
    status: str | None = None,
    project: str | None = None,
    session: str | None = None,
    since: datetime | None = None,
    limit: Count | None = None,
    after: str | None = None,
) -> list[RunDocument]:
    """List runs, which are single executions that somebody started, the newest first.

    Args:
        context: Where.
        workflow: Only of the workflow of this name.
        status: Only of this status, such as `failed`.
        project: Only of this project.
        session: Only of this session; by default the context's, or all.
        since: Only those that were started then or later.
        limit: Maximum number.
        after: Only those that were started before this one, the last of the page before.

    Returns:
        A document for each: its status, what it failed by, and its times.

    Raises:
        InputError: If there is no such status, session or run.
    """
    if status is not None:
        check_run_status(status)
    rows = queries.list_sweeps(
        context.database,
        workflow=workflow,
        status=status,
        project=project,
        session=_session(context, session),
        since=None if since is None else since.timestamp(),
        limit=limit,
        kind="single",
        after=_last(context, after),
    )
    return [run_document(row) for row in rows]


def _session(context: Context, session: str | None) -> str | None:
    """Return the session whose sweeps are listed, which must exist; None for all."""
    session = session or context.session
    if session is not None:
        find_session(context.database, session)
    return session


def _last(context: Context, ref: str | None) -> SweepRow | None:
    """Return the last sweep or run of the page before."""
    if ref is None:
        return None
    target = find(context.database, ref)
    return target.row if target.kind == "sweep" else queries.find_sweep(context.database, target.row.sweep_id)


@checked
def status(context: Context, ref: str, *, cases: ListedCases = 0) -> StatusDocument | StandingDocument:
    """Return how far a sweep or an execution is, what holds it up, and how to continue.

    Args:
        context: Where.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        cases: Of a sweep: how many cases to list for each cause of failures.

    Returns:
        The document, as `wtb status --format json` prints it.

    Raises:
        InputError: If there is no such sweep or execution.
    """
    from wtb.store.control import approvals

    # A deadline that has passed must not be shown as an open question, even if no runner has noticed it.
    approvals.expire(context.database)
    target = find_target(context.database, ref)
    if target.kind == "execution":
        from wtb.display.views.sweeps import standing_document

        return standing_document(context.database, target.row)
    from wtb.display.views.sweeps import status_document

    return status_document(context.database, target.row, cases=cases)


@frozen
class Located:
    """The present meaning of a reference.

    Attributes:
        id: Of the sweep, or of the execution; of a single execution that was meant as a whole, that of its sweep.
        status: How it stands.
        reason: Why.
        execution: The id of the execution, if it is one.
    """

    id: str
    status: str
    reason: str | None
    execution: str | None = None


@checked
def locate_sweep(context: Context, ref: str) -> Located:
    """Return which sweep a reference means, and how it stands.

    Args:
        context: Where.
        ref: Its id, the beginning of it, or a name: the newest sweep of that name.

    Raises:
        InputError: If there is none, or it is a single execution.
    """
    row = queries.find_sweep(context.database, ref)
    if row.kind == "single":
        raise no_sweep(ref)
    return Located(row.id, row.status, row.reason)


@checked
def locate_execution(context: Context, ref: str) -> Located:
    """Return which execution a reference means, and how it stands.

    Args:
        context: Where.
        ref: Its id, the beginning of it, or a name that means a single one.

    Raises:
        InputError: If there is none, or it is a sweep of several cells.
    """
    row = find_one(context.database, ref)
    is_single = queries.find_sweep(context.database, row.sweep_id).kind == "single" and not row.id.startswith(ref)
    return Located(row.sweep_id if is_single else row.id, row.status, row.reason, row.id)


def no_sweep(ref: str) -> InputError:
    """Return the error for a reference to a single execution."""
    return InputError(f"{ref!r} is a single execution and no sweep; `Bench.execution` finds it")


def outcome(context: Context, ref: str) -> OutcomeDocument:
    """Return how an execution has ended or stands, with its state, its result and the questions that it waits for.

    Args:
        context: Where.
        ref: An execution: its id, the beginning of it, or a name that means a single one.

    Raises:
        InputError: If there is no such execution.
    """
    from wtb.display.views.sweeps import outcome_document
    from wtb.store.control import approvals

    approvals.expire(context.database)
    row = find_one(context.database, ref)
    return outcome_document(context.database, row, is_run=context.runs_here(row.sweep_id))


def statuses_of(context: Context, execution: str) -> tuple[str, str]:
    """Return the status of the sweep of an execution, and how the execution stands in it, by its id.

    Raises:
        NotFound: If there is no such execution.
    """
    from wtb.store.control.executions import status_in_sweep

    row = queries.find_execution(context.database, execution)
    sweep = queries.find_sweep(context.database, row.sweep_id)
    return sweep.status, status_in_sweep(sweep, row, is_run=context.runs_here(sweep.id))[0]


@checked
def show(context: Context, ref: str, *, calls: bool = False) -> SummaryDocument | ExecutionDocument:
    """Return a sweep with what it was asked for, or an execution with its path, attempts, output and state.

    Args:
        context: Where.
        ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
        calls: Of an execution: its model and tool calls, too.

    Returns:
        The document, as `wtb show --format json` prints it.

    Raises:
        InputError: If there is no such sweep or execution, or for the calls of a sweep.
    """
    target = find_target(context.database, ref)
    if target.kind == "execution":
        from wtb.display.views.executions import execution_document

        return execution_document(context.database, target.row, calls=calls)
    if calls:
        raise InputError(
            f"{ref!r} is a sweep; calls are of one execution (`wtb show {shlex.quote(ref)} --cells` lists them)"
        )
    from wtb.display.views.sweeps import summary_document

    return summary_document(context.database, target.row)


@frozen
class Cells:
    """The cells of a sweep.

    Attributes:
        nodes: The nodes that it varies.
        metrics: The names of its metrics.
        cells: A document for each cell, read as they are taken: there may be more than memory holds.
    """

    nodes: tuple[str, ...]
    metrics: tuple[str, ...]
    cells: Iterator[CellDocument]


@checked
def cells(
    context: Context, ref: str, *, statuses: Sequence[str] = (), case: str | None = None, limit: Count | None = None
) -> Cells:
    """Return the cells of a sweep with their states and scores.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        statuses: Only cells of these, such as `failed`.
        case: Only cells of the case with this id.
        limit: Maximum number.

    Returns:
        The cells, and what their columns are called.

    Raises:
        InputError: If there is no such sweep, status or case.
    """
    from wtb.operations.inspection.cells import cell_documents

    database = context.database
    target = find(database, ref)
    if target.kind == "execution":
        raise InputError(f"{ref!r} is an execution; cells are listed of a sweep")
    for status in statuses:
        _check_status(status, CELL, "cell")
    if case is not None:
        details.check_case(database, target.id, case)
    return Cells(
        tuple(node for choice in queries.choices(database, target.id)[:1] for node in choice),
        tuple(metric.name for metric in queries.metric_rows(database, target.id)),
        cell_documents(database, target.id, statuses=statuses, case=case, limit=limit),
    )


@checked
def check_sweep_status(status: str, *, singles: bool = False) -> None:
    """Check that it is a status of sweeps, or of single executions beside them. Raises InputError."""
    names = [name for name in SWEEP if name not in HIDDEN_SWEEPS]
    _check_status(status, [*names, *(["waiting"] if singles else [])], "sweep")


@checked
def check_run_status(status: str) -> None:
    """Check that it is a status of single executions. Raises InputError."""
    _check_status(status, get_args(RunStatus), "run")


def _check_status(name: str, statuses: Collection[str], what: str) -> None:
    """Raise InputError with a near match for an invalid status of a `what`."""
    if name not in statuses:
        near = did_you_mean(name, statuses)
        raise InputError(f"{name!r} is not a status of a {what}{near} (they are: {', '.join(statuses)})")
