"""Decisions of people about one execution: pause, resume, cancel. Each is one transaction.

The execution is locked before its sweep, as claims and flushes do, so that they never wait for each other in a circle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.questions import how_to_answer
from wtb.core.status import EXECUTION, OPEN_EXECUTIONS, sources
from wtb.core.values import Value
from wtb.store.bulk import fetch_records
from wtb.store.cell_status import attempt_column, is_attempt, node_runs_with_attempts
from wtb.store.control.edits import edited_head, locked, pause_at_once
from wtb.store.control.pending_rollbacks import finish_first, unfinished
from wtb.store.control.sweeps import cancel_executions
from wtb.store.database import Database
from wtb.store.log import add_event, add_execution_event, subject
from wtb.store.read.lineage import ids_below, of_same_case, rows_of
from wtb.store.records import NodeRunUnderWay
from wtb.store.runs.leases import move, move_cells, try_move
from wtb.store.tables.control import QuestionRow
from wtb.store.tables.executions import AskedRow, ExecutionRow
from wtb.store.tables.schema import (
    approvals,
    awaiting,
    cases,
    combinations,
    events,
    executions,
    is_pending,
    is_running,
    node_run_columns,
    node_runs,
    now,
    sweeps,
)
from wtb.store.tables.sweeps import SweepRow

# Executions that keep a sweep from its end. Forks that people made have `choices` and do not count.
_OPEN = (executions.c.status.in_(OPEN_EXECUTIONS), executions.c.choices.is_(None))
_STANDSTILL = re.compile(r"waits for \d|paused executions: |executions that can continue: ")  # see `standstill`
_REOPENED = re.compile(r"execution \S+ was [a-z ]+: wtb resume ")  # by a rollback
_POSSIBLE = {
    "pending": "pause or cancel it",
    "running": "pause, cancel or roll it back",
    "forked": "its cells went on in the executions that it forked into; name one of those (`wtb show {id}`)",
    "waiting": "answer it (`wtb approvals`), or pause, cancel or roll it back",
    "paused": "resume, cancel, fork or roll it back",
    "completed": "fork it, or roll it back to an earlier checkpoint",
    "failed": "retry it, fork it or roll it back",
    "cancelled": "retry it, fork it or roll it back",
}


def impossible(row: ExecutionRow, what: str, *, is_unclaimed: bool = False) -> ConflictError:
    """Return the error for an act that the status of an execution does not allow, with the acts that are possible.

    Args:
        row: The execution.
        what: The participle of the act, such as "paused".
        is_unclaimed: Nobody claims it, so that it has to be resumed.
    """
    status = f"{row.status} ({row.reason})" if row.reason else row.status
    possible = ("resume, " if is_unclaimed else "") + _POSSIBLE[row.status].format(id=row.id)
    return ConflictError(f"execution {row.id} is {status}: it cannot be {what}; possible: {possible}")


def pause(
    database: Database, execution_id: str, *, reason: str, by: str, at_once: bool = False, lost: str | None = None
) -> str:
    """Pause an execution that nobody runs, or request that its runner pauses it before its next step.

    Args:
        database: The database.
        execution_id: The execution.
        reason: Why, for people.
        by: The person who pauses it.
        at_once: Take it from its runner. The running node run is lost, and runs again on resume.
        lost: A runner that is dead; an execution that it has claimed is paused at once, too.

    Returns:
        "paused", or "running" if its runner was asked to pause it.

    Raises:
        ConflictError: If it cannot be paused.
    """
    with database.write() as connection:
        row = locked(connection, execution_id)
        if row.status not in sources(EXECUTION, "paused") or row.status not in OPEN_EXECUTIONS:
            raise impossible(row, "paused")
        if row.status != "running" or at_once or (lost is not None and row.owner_id == lost):
            pause_at_once(connection, row, reason=reason, by=by)
            return "paused"
        request = {"to": "paused", "by": by, "reason": reason}
        # Repeating a request adds no event.
        if row.asked != request:
            connection.execute(executions.update().where(executions.c.id == execution_id).values(asked=request))
            add_execution_event(connection, row, "execution.pausing", reason=reason, by=by)
        return "running"


def resume(database: Database, execution_id: str, *, by: str, changes: Mapping[str, Value] | None = None) -> None:
    """Resume a paused execution from its head; breakpoints there do not pause it again.

    Args:
        database: The database.
        execution_id: The execution.
        by: The person who resumes it.
        changes: New values of keys of its state.

    Raises:
        ConflictError: If it is not paused.
    """
    with database.write() as connection:
        row = locked(connection, execution_id)
        if row.status == "waiting":
            raise _waiting_error(connection, row)
        if row.status != "paused":
            raise impossible(row, "resumed")
        if unfinished(row) is not None:
            raise finish_first(row, "resumed")
        head = edited_head(connection, row, changes) if changes else row.head_id
        _continue_paused(connection, executions.c.id == execution_id, head)
        add_execution_event(connection, row, "execution.resumed", by=by, changed=sorted(changes or ()), head=head)


def has_paused(database: Database, sweep_id: str) -> bool:
    """Return whether a sweep has executions that `resume_all` would resume."""
    query = sa.select(executions.c.id).where(_resumable(sweep_id), executions.c.status == "paused")
    return database.scalar(query.limit(1)) is not None


def _resumable(sweep_id: str) -> sa.ColumnElement[bool]:
    """Return the condition for executions of a sweep that have no unfinished rollback."""
    return sa.and_(executions.c.sweep_id == sweep_id, executions.c.asked.is_(None))


def resume_all(database: Database, sweep_id: str, *, by: str) -> int:
    """Resume all paused executions of a sweep, except those with an unfinished rollback. Returns how many."""
    ready = _resumable(sweep_id)
    paused = sa.select(executions).where(ready, executions.c.status == "paused")
    with database.write() as connection:
        rows = fetch_records(connection, ExecutionRow, paused.order_by(executions.c.id).with_for_update())
        if rows:
            _continue_paused(connection, ready, executions.c.head_id)
        for row in rows:
            add_execution_event(connection, row, "execution.resumed", by=by, changed=[])
    return len(rows)


def _continue_paused(connection: sa.Connection, which: sa.ColumnElement[bool], head: Any) -> None:
    """Make paused executions pending. `head` is the checkpoint at which breakpoints no longer apply."""
    connection.execute(
        executions.update()
        .where(which, executions.c.status == "paused")
        .values(status="pending", passed_id=head, reason=None, asked=None, finished_at=None)
    )


def _waiting_error(connection: sa.Connection, row: ExecutionRow) -> ConflictError:
    """Return the error for an execution that waits for a person, with the commands that answer."""
    query = (
        sa.select(approvals.c.id, approvals.c.question, approvals.c.kind, approvals.c.options)
        .join(awaiting, awaiting.c.approval_id == approvals.c.id)
        .where(awaiting.c.execution_id == row.id, approvals.c.status == "open")
    )
    questions = connection.execute(query).all()
    listed = "; ".join(f"{question.id} ({question.question[:80]})" for question in questions)
    answers = ", ".join(how_to_answer(question.id, question.kind, question.options) for question in questions)
    return ConflictError(
        f"execution {row.id} waits for a person: {listed or row.reason}. Answer with: {answers or 'wtb answer'}"
    )


def cancel(database: Database, execution_id: str, *, reason: str, by: str) -> int:
    """Cancel an execution with its cells; its runner can write nothing more.

    Its sweep is completed if no other execution is open and nobody runs the sweep.

    Args:
        database: The database.
        execution_id: The execution.
        reason: Why, for people.
        by: The person who cancels it.

    Returns:
        How many cells were cancelled.

    Raises:
        ConflictError: If it has ended.
    """
    with database.write() as connection:
        row = locked(connection, execution_id)
        if row.status not in OPEN_EXECUTIONS:
            raise impossible(row, "cancelled")
        cancel_executions(connection, [execution_id], reason)
        ended = move_cells(connection, row, "cancelled", finished_at=now())
        case = connection.scalar(
            sa.select(cases.c.id).where(cases.c.sweep_id == row.sweep_id, cases.c.number == row.case_number)
        )
        add_execution_event(connection, row, "execution.cancelled", reason=reason, by=by, cells=len(ended))
        for combination in ended:
            cell = {"case": case, "repeat": row.repeat, "combination": combination}
            add_execution_event(connection, row, "cell.cancelled", **cell, reason=reason)
        _end_if_done(connection, row.sweep_id, by)
        return len(ended)


def _end_if_done(connection: sa.Connection, sweep_id: str, by: str) -> None:
    """Complete a sweep that has no runner and no open executions."""
    query = sa.select(sweeps.c.status).where(sweeps.c.id == sweep_id).with_for_update()
    if connection.scalar(query) not in ("pending", "paused"):
        return  # its runner ends it
    open_executions = sa.select(sa.literal(1)).where(executions.c.sweep_id == sweep_id, *_OPEN)
    if connection.execute(open_executions.limit(1)).first() is None:
        try_move(connection, sweep_id, "running", by=by)
        try_move(connection, sweep_id, "completed", by=by)


class Request(NamedTuple):
    """A request of a person for an execution, with the token that the execution had then."""

    transition: AskedRow
    token: int


@frozen
class Requests:
    """Requests of people for a sweep that this process runs.

    Attributes:
        by_execution: Requests for executions that a runner has claimed.
        breakpoints: The breakpoints of the sweep.
        pending: Whether an execution could be claimed.
        stopped: The numbers of the stopped combinations.
    """

    by_execution: Mapping[str, Request]
    breakpoints: Sequence[str]
    pending: bool
    stopped: frozenset[int]


def read_requests(database: Database, sweep_id: str, runner_id: str) -> Requests:
    """Read the requests for a sweep, and for its executions that a runner has claimed."""
    mine = (executions.c.sweep_id == sweep_id, executions.c.owner_id == runner_id, is_running)
    query = sa.select(executions.c.id, executions.c.token, executions.c.asked).where(
        *mine, executions.c.asked.is_not(None)
    )
    pending = sa.select(sa.literal(1)).where(executions.c.sweep_id == sweep_id, is_pending)
    with database.read() as connection:
        requests = {row.id: Request(row.asked, row.token) for row in connection.execute(query)}
        texts = connection.scalar(sa.select(sweeps.c.breakpoints).where(sweeps.c.id == sweep_id))
        has_pending = connection.execute(pending.limit(1)).first() is not None
        return Requests(requests, texts or (), has_pending, stopped_in(connection, [sweep_id])[sweep_id])


_STOPPED = sa.select(combinations.c.sweep_id, combinations.c.number).where(
    combinations.c.sweep_id.in_(sa.bindparam("sweep_ids", expanding=True)), combinations.c.stopped.is_not(None)
)


def stopped_in(connection: sa.Connection, sweep_ids: Iterable[str]) -> dict[str, frozenset[int]]:
    """Return the numbers of the combinations that were stopped, by sweep."""
    numbers_by_sweep: dict[str, set[int]] = {id: set() for id in sweep_ids}
    for id, number in connection.execute(_STOPPED, {"sweep_ids": list(numbers_by_sweep)}):
        numbers_by_sweep[id].add(number)
    return {id: frozenset(numbers) for id, numbers in numbers_by_sweep.items()}


def lost_claims(database: Database, runner_id: str, claims: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the claims, as (execution, token), that a runner has lost. Executions without a row yet count as its
    own.
    """
    tokens = dict(sorted(claims))
    query = sa.select(executions.c.id, executions.c.token, executions.c.owner_id)
    rows = database.rows_among(query, executions.c.id, tokens)
    return {(id, tokens[id]) for id, token, owner in rows if owner != runner_id or token != tokens[id]}


def set_breakpoints(database: Database, sweep_id: str, texts: Sequence[str], *, by: str) -> None:
    """Replace the breakpoints of a sweep; its runners see them within a second."""
    with database.write() as connection:
        changed = sweeps.update().where(sweeps.c.id == sweep_id).values(breakpoints=list(texts) or None)
        about = subject(connection.scalar(changed.returning(sweeps.c.session_id)), sweep_id)
        add_event(connection, about, "sweep.breakpoints", {"breakpoints": list(texts), "by": by})


def complete(database: Database, sweep_id: str) -> dict[str, int]:
    """Complete a sweep if nothing of it is open, which is checked in the same transaction.

    Returns:
        The number of open executions by status, without those that own no cell; empty if the sweep was completed.

    Raises:
        ConflictError: If its status does not allow it.
    """
    with database.write() as connection:
        # Whoever reopens an execution takes this lock, too. Rows that refer to the sweep can still be inserted.
        connection.execute(sa.select(sweeps.c.id).where(sweeps.c.id == sweep_id).with_for_update(key_share=True))
        open_counts = _open_counts(connection, sweep_id)
        if not open_counts:
            move(connection, sweep_id, "completed")
        return open_counts


def _open_counts(connection: sa.Connection, sweep_id: str) -> dict[str, int]:
    query = (
        sa.select(executions.c.status, sa.func.count())
        .where(executions.c.sweep_id == sweep_id, *_OPEN)
        .group_by(executions.c.status)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def open_questions(database: Database, sweep_id: str) -> int:
    """Return the number of answers that a sweep waits for, without those that only executions without cells wait
    for.
    """
    mine = awaiting.join(executions, executions.c.id == awaiting.c.execution_id)
    waits = sa.select(sa.literal(1)).select_from(mine)
    waits = waits.where(awaiting.c.approval_id == approvals.c.id, executions.c.choices.is_(None))
    return database.count(approvals.c.sweep_id == sweep_id, approvals.c.status == "open", waits.exists())


def standstill(database: Database, sweep_id: str, open_counts: Mapping[str, int]) -> str:
    """Return the reason why a sweep that nothing stopped has not ended, from its open executions by status."""
    answers = open_questions(database, sweep_id) if "waiting" in open_counts else 0
    reasons = {
        "waiting": f"waits for {answers:,} answer{'s'[: answers != 1]}: wtb approvals",
        "paused": f"paused executions: {open_counts.get('paused', 0):,}",
        "pending": f"executions that can continue: {open_counts.get('pending', 0):,}",  # somebody was quick
    }
    return "; ".join(text for status, text in reasons.items() if status in open_counts)


def status_in_sweep(sweep: SweepRow, row: ExecutionRow, *, is_run: bool = False) -> tuple[str, str | None]:
    """Return the status of an execution and the reason for it: those of its sweep if that does not let it begin.

    Args:
        sweep: The row of its sweep.
        row: Its row.
        is_run: Whether this process is about to run the sweep, whatever status that has until then.
    """
    is_held_up = row.status == "pending" and row.choices is None and sweep.status in ("paused", "failed", "cancelled")
    is_held_up = is_held_up and not is_run
    return (sweep.status, sweep.reason) if is_held_up else (row.status, row.reason)


def is_standstill(reason: str | None) -> bool:
    """Return whether a sweep was paused for this reason because nothing of it could continue."""
    return _STANDSTILL.match(reason or "") is not None


def reason_now(database: Database, sweep: SweepRow) -> str | None:
    """Return the reason of a sweep's status. Questions it waited for when it was paused may have been answered
    since.
    """
    reason: str | None = sweep.reason
    counted = _STANDSTILL.match(reason or "")
    if sweep.status != "paused" or not (counted or _REOPENED.match(reason or "")):
        return reason
    with database.read() as connection:
        open_counts = _open_counts(connection, sweep.id)
    if not open_counts:
        return f"nothing of it is open any more: wtb resume {sweep.id}"
    return standstill(database, sweep.id, open_counts) if counted else reason


def line_of(database: Database, execution_id: str) -> list[ExecutionRow]:
    """Return an execution and those that it forked into, directly or through others, the oldest first."""
    with database.read() as connection:
        descendant_ids = ids_below(connection, execution_id, executions.c.origin == "fork")
        return rows_of(connection, [execution_id, *descendant_ids])


def newest_retry(database: Database, execution_id: str) -> str:
    """Return the execution that continues the cells of a retried one."""
    retries = (executions.c.parent_id == execution_id, executions.c.origin == "retry")
    query = sa.select(executions.c.id).where(*of_same_case(execution_id), *retries)
    return str(database.scalar(query.order_by(executions.c.id.desc()).limit(1)))


def node_runs_under_way(database: Database, execution_id: str) -> list[NodeRunUnderWay]:
    """Return the node runs of an execution that have not ended, each with `for_s`: seconds since it began."""
    query = sa.select(*node_run_columns, (now() - node_runs.c.started_at).label("for_s")).where(
        node_runs.c.execution_id == execution_id, node_runs.c.status == "running"
    )
    return database.records(NodeRunUnderWay, query.order_by(node_runs.c.started_at))


def spent_by(database: Database, execution_id: str) -> tuple[float, int, int]:
    """Return what all attempts of an execution's own node runs have spent: US dollars, and tokens in and out."""
    sums = [sa.func.coalesce(sa.func.sum(attempt_column(name)), 0) for name in ("usd", "tokens_in", "tokens_out")]
    query = sa.select(*sums).select_from(node_runs_with_attempts).where(is_attempt)
    ((usd, tokens_in, tokens_out),) = database.tuples(query.where(node_runs.c.execution_id == execution_id))
    return float(usd), int(tokens_in), int(tokens_out)


def questions_of(database: Database, execution_id: str) -> list[QuestionRow]:
    """Return the open questions that an execution waits for."""
    query = (
        sa.select(approvals)
        .join(awaiting, awaiting.c.approval_id == approvals.c.id)
        .where(awaiting.c.execution_id == execution_id, approvals.c.status == "open")
        .order_by(approvals.c.asked_at)
    )
    return database.records(QuestionRow, query)


class Change(NamedTuple):
    """The time, in seconds since the epoch, at which an execution got its status, and the person who set it, if any."""

    at: float
    by: str | None


def last_change(database: Database, execution_id: str) -> Change | None:
    """Return the last change of an execution's status."""
    same_execution = executions.c.id == execution_id
    # The event of a completion is derived from the row and not stored, so the row itself is read first.
    completed = sa.select(executions.c.finished_at, sa.null()).where(
        same_execution, executions.c.ended_event.is_not(None)
    )
    query = (
        sa.select(events.c.at, events.c.data["by"].as_string())
        .where(
            events.c.sweep_id == sa.select(executions.c.sweep_id).where(same_execution).scalar_subquery(),
            events.c.execution_id == execution_id,
            events.c.kind.in_([f"execution.{word}" for word in (*EXECUTION, "started", "resumed", "rolled_back")]),
        )
        .order_by(events.c.transaction.desc(), events.c.id.desc())
        .limit(1)
    )
    return database.record(Change, completed) or database.record(Change, query)
