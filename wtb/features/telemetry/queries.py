"""The rows of traces: executions with their attempts, the calls of those, and the scores of their cells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from wtb.core.failures import StoredFailure
from wtb.store.cell_status import (
    attempt_column,
    combination,
    executions_with_combinations,
    has_cell,
    is_attempt,
    node_runs_with_attempts,
)
from wtb.store.database import Database
from wtb.store.tables.schema import calls, cases, executions, invocations, node_runs, scores

T = TypeVar("T")


@dataclass(frozen=True)
class TracedExecution:
    """An execution of a trace.

    Attributes:
        parent_id: The execution that it was forked from, or that it retries.
        combinations: The combinations that it stands for.
    """

    id: str
    parent_id: str | None
    origin: str
    status: str
    case_number: int
    repeat: int
    combinations: Sequence[int]
    created_at: float
    finished_at: float | None
    failure: StoredFailure | None
    case_id: str


@dataclass(frozen=True)
class TracedAttempt:
    """An attempt of a node run of an execution."""

    node_run_id: str
    number: int
    status: str
    started_at: float
    duration_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    failure: StoredFailure | None
    execution_id: str
    node: str
    variant: str
    visit: int
    is_accepted: bool


@dataclass(frozen=True)
class TracedCall:
    """A call of a model or of a tool.

    Attributes:
        at: When it had ended.
        prompt: The prompt as typed JSON, if contents are read.
        response: The response as typed JSON, if contents are read.
    """

    id: str
    node_run_id: str
    attempt: int
    model: str | None
    tool: str | None
    tokens_in: int
    tokens_out: int
    usd: float
    duration_s: float | None
    at: float
    prompt: str | None
    response: str | None


@dataclass(frozen=True)
class TracedInvocation:
    """A call of a tool of the workflow.

    Attributes:
        at: When it began.
        arguments: The arguments as typed JSON, if contents are read.
        result: The result as typed JSON, if contents are read.
    """

    node_run_id: str
    attempt: int
    number: int
    tool: str
    status: str
    at: float
    duration_s: float
    arguments: str | None
    result: str | None


@dataclass(frozen=True)
class TracedScore:
    """A score of a cell that an execution ended."""

    execution_id: str
    combination: int
    metric: str
    value: float | None
    error: str | None


def execution_ids(database: Database, sweep_id: str) -> list[str]:
    """Return the ids of the executions of a sweep, each after the execution that it was forked from."""
    return database.scalars(
        sa.select(executions.c.id).where(executions.c.sweep_id == sweep_id).order_by(executions.c.id)
    )


def traced_executions(database: Database, ids: Collection[str]) -> list[TracedExecution]:
    """Return executions."""
    columns = ("id", "parent_id", "origin", "status", "case_number", "repeat", "combinations")
    times = ("created_at", "finished_at", "failure")
    same = sa.and_(cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number)
    query = (
        sa.select(*(executions.c[name] for name in (*columns, *times)), cases.c.id.label("case_id"))
        .select_from(executions.join(cases, same))
        .where(executions.c.id.in_(ids))
        .order_by(executions.c.id)
    )
    return database.records(TracedExecution, query)


def accepted_attempts(database: Database, ids: Collection[str]) -> list[tuple[str, str, int]]:
    """Return (execution, node run, number) of the accepted attempts of executions, in their order."""
    query = (
        sa.select(node_runs.c.execution_id, node_runs.c.id, node_runs.c.attempts)
        .where(node_runs.c.execution_id.in_(ids), node_runs.c.status == "succeeded")
        .order_by(node_runs.c.ended_at, node_runs.c.id)
    )
    return database.tuples(query)


def traced_attempts(database: Database, execution_ids: Collection[str]) -> list[TracedAttempt]:
    """Return the attempts of executions."""
    query = (
        sa.select(
            *map(attempt_column, ("node_run_id", "number", "status", "started_at", "duration_s")),
            *map(attempt_column, ("usd", "tokens_in", "tokens_out", "failure")),
            *(node_runs.c[name] for name in ("execution_id", "node", "variant", "visit")),
            sa.and_(attempt_column("status") == "succeeded", node_runs.c.status == "succeeded").label("is_accepted"),
        )
        .select_from(node_runs_with_attempts)
        .where(node_runs.c.execution_id.in_(execution_ids), is_attempt)
        .order_by("started_at", node_runs.c.id, "number")
    )
    return database.records(TracedAttempt, query)


def traced_calls(database: Database, execution_ids: Collection[str], *, with_content: bool) -> list[TracedCall]:
    """Return the calls that attempts of executions made; without content, prompts and responses are not read."""
    unread = () if with_content else ("prompt", "response")
    return _of_attempts(database, TracedCall, calls, execution_ids, ("at", "id"), unread)


def traced_invocations(
    database: Database, execution_ids: Collection[str], *, with_content: bool
) -> list[TracedInvocation]:
    """Return the tool calls that attempts of executions made, including those that were undone since."""
    unread = () if with_content else ("arguments", "result")
    order = ("node_run_id", "attempt", "number")
    return _of_attempts(database, TracedInvocation, invocations, execution_ids, order, unread)


def _of_attempts(
    database: Database,
    kind: type[T],
    table: sa.Table,
    execution_ids: Collection[str],
    order: Sequence[str],
    unread: Collection[str],
) -> list[T]:
    """Return rows of a table as records, whose fields are its columns; columns of `unread` are None."""
    names = kind.__annotations__
    # The same columns either way, but texts that may be large are not read.
    query = (
        sa.select(*(sa.null().label(name) if name in unread else table.c[name] for name in names))
        .select_from(table.join(node_runs, node_runs.c.id == table.c.node_run_id))
        .where(node_runs.c.execution_id.in_(execution_ids))
        .order_by(*(table.c[name] for name in order))
    )
    return database.records(kind, query)


def traced_scores(database: Database, sweep_id: str, execution_ids: Collection[str]) -> list[TracedScore]:
    """Return the scores of cells that executions ended."""
    same = [scores.c[name] == executions.c[name] for name in ("sweep_id", "case_number", "repeat")]
    # An execution may stand for several combinations, each with a cell and scores of its own.
    its = sa.and_(*same, scores.c.combination == combination.element)
    query = (
        sa.select(executions.c.id, scores.c.combination, scores.c.metric, scores.c.value, scores.c.error)
        .select_from(executions_with_combinations.join(scores, its))
        .where(executions.c.sweep_id == sweep_id, executions.c.id.in_(execution_ids), has_cell())
        .order_by(scores.c.metric, scores.c.combination)
    )
    return database.records(TracedScore, query)
