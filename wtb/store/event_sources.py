"""Events that are derived from rows of other tables: their positions in the log, and their data.

Such a row has the position of its last event, (transaction, event); its other events have the ids before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.core.tree.checkpoints import in_order, visible_state
from wtb.store.tables.column_types import Json, OrderedJson, array_length, error_in_json, rows_array, score_object
from wtb.store.tables.schema import (
    calls,
    cases,
    checkpoints,
    decisions,
    executions,
    invocations,
    metrics,
    node_runs,
    scores,
    sweeps,
)
from wtb.store.tables.sweeps import EventRow

COMPLETED: Final = "execution.completed"
FORKED: Final = "execution.forked"
EVENT_COLUMNS: Final = ("id", "transaction", "session_id", "sweep_id", "execution_id", "kind", "severity", "at", "data")
Count = sa.ColumnElement[int]


@frozen
class Derived:
    """Events that are derived from the rows of a table.

    Attributes:
        kinds: The kinds that a row can hold; the last one is that of its last event.
        transaction: With `id` the position of the last event of a row; null if the row holds none.
        columns: The data of the events, under the names of `COLUMNS`.
        events: Yields the events of a row, given the row and its last event without kind and data.
        execution: The id of the execution that the events are about.
        belongs_to: The table and column by which `keep_events` names rows.
        joined: The tables that `columns` need beside that of the rows.
        only: The conditions of kinds that not every row holds.
        counts: The number of events of kinds that a row may hold several times.
        mark: A column that shows which events a row holds; null once it holds none.
    """

    kinds: tuple[str, ...]
    transaction: sa.Column[Any]
    id: sa.Column[Any]
    at: sa.Column[Any]
    columns: Mapping[str, sa.ColumnElement[Any]]
    events: Callable[[sa.RowMapping, EventRow], Iterator[EventRow]]
    execution: sa.Column[Any]
    belongs_to: tuple[sa.Table, sa.Column[Any]]
    joined: sa.FromClause | None = None
    only: Mapping[str, sa.ColumnElement[bool]] = field(default_factory=dict)
    counts: Mapping[str, Count] = field(default_factory=dict)
    mark: sa.Column[Any] | None = None

    @property
    def table(self) -> sa.Table:
        """The table of the rows."""
        table = self.id.table
        assert isinstance(table, sa.Table)
        return table

    def of_executions(self, ids: sa.ColumnElement[Any] | list[str]) -> sa.ColumnElement[bool]:
        """Return the condition that an event is about one of these executions."""
        if self.execution.table is self.table:
            return self.execution.in_(ids)
        theirs = sa.select(node_runs.c.id).where(node_runs.c.execution_id.in_(ids))
        return self.belongs_to[1].in_(theirs)

    def holds(self, kinds: tuple[str, ...]) -> sa.ColumnElement[bool] | None:
        """Return the condition that a row holds events of kinds with these beginnings; None if no row does."""
        matching = [kind for kind in self.kinds if not kinds or kind.startswith(kinds)]
        if not matching:
            return None
        always = not kinds or any(kind not in self.only for kind in matching)
        return sa.true() if always else sa.or_(*(self.only[kind] for kind in matching))

    def count(self, kind: str) -> Count:
        """Return the number of events of a kind, for a query of the rows."""
        if (number := self.counts.get(kind)) is not None:
            return sa.func.sum(sa.case((self.id.is_not(None), number)))
        if (condition := self.only.get(kind)) is not None:
            return sa.func.count(sa.case((condition, self.id)))
        return sa.func.count(self.id)


# Columns of a query of events beside those of `events`, which has its data as `data`.
COLUMNS: Final[dict[str, sa.types.TypeEngine[Any]]] = {
    "source": sa.Integer(),
    "node": sa.String(),
    "task": sa.String(),
    "variant": sa.String(),
    "visit": sa.Integer(),
    "attempt": sa.Integer(),
    "duration_s": sa.Double(),
    "usd": sa.Double(),
    "begun_at": sa.Double(),
    "case": sa.Text(),
    "repeat": sa.Integer(),
    "combinations": OrderedJson,
    "more": OrderedJson,
    "position": OrderedJson,
    "name": sa.String(),
    "kind_of_call": sa.String(),
    "node_run": sa.String(),
    "number": sa.Integer(),
    "tokens_in": sa.BigInteger(),
    "tokens_out": sa.BigInteger(),
    "cached": sa.BigInteger(),
    "error": sa.Text(),
}


def select_derived(number: int, sweep_id: str | sa.BindParameter[str]) -> sa.Select[Any]:
    """Select the rows of one of `DERIVED` that hold events of a sweep, with the columns of all sources."""
    derived = DERIVED[number]
    session = sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id).scalar_subquery()
    columns = {**derived.columns, "source": sa.literal(number)}
    details = columns.pop("data", sa.cast(sa.null(), Json))
    query = sa.select(
        derived.id.label("id"),
        derived.transaction.label("transaction"),
        session.label("session_id"),
        derived.table.c.sweep_id,
        derived.execution.label("execution_id"),
        sa.literal(derived.kinds[-1]).label("kind"),
        sa.literal("info").label("severity"),
        derived.at.label("at"),
        details.label("data"),
        *(columns.get(name, sa.cast(sa.null(), type)).label(name) for name, type in COLUMNS.items()),
    )
    if derived.joined is not None:
        query = query.select_from(derived.joined)
    return query.where(derived.table.c.sweep_id == sweep_id, derived.id.is_not(None))


def events_of_row(row: sa.RowMapping) -> Iterator[EventRow]:
    """Yield the events of a row that a query of the log returned, in their order."""
    last: EventRow = {name: row[name] for name in EVENT_COLUMNS}  # type: ignore[assignment]
    if row["source"] is None:
        yield last
    else:
        yield from DERIVED[row["source"]].events(row, last)


def _task(row: sa.RowMapping) -> dict[str, Any]:
    """Name a task and its variant as events do."""
    several = {} if row["task"] == row["node"] else {"task": row["task"]}
    return {"node": row["node"], **several, "variant": row["variant"]}


def _start_of_node_run(row: sa.RowMapping, last: EventRow) -> Iterator[EventRow]:
    if row["name"] is not None:
        applied = {**_task(row), "replaces": row["name"]}
        yield {**last, "id": last["id"] - 1, "kind": "variant.applied", "data": applied}
    yield {**last, "data": {**_task(row), "visit": row["visit"], "attempt": 1}}


def _success_of_node_run(row: sa.RowMapping, last: EventRow) -> Iterator[EventRow]:
    """Yield the start of a node run, if nothing of its execution happened in between, and its success."""
    if row["begun_at"] is not None:
        start: EventRow = {**last, "id": last["id"] - 1, "kind": "node_run.started", "at": row["begun_at"]}
        yield from _start_of_node_run(row, start)
    spent = {"usd": row["usd"]} if row["usd"] else {}
    took = {"visit": row["visit"], "attempt": row["attempt"], "duration_s": row["duration_s"], **spent}
    yield {**last, "data": {**_task(row), **took, "writes": in_order(visible_state(row["more"] or {}), {})}}


def _checkpoint(row: sa.RowMapping, last: EventRow) -> Iterator[EventRow]:
    """Yield the decisions that led to the next nodes, then the checkpoint."""
    decisions = sorted(row["more"] or ())
    for id, (_, node, to, key, why, edges) in enumerate(decisions, last["id"] - len(decisions)):
        details = {"checkpoint": row["node"], "node": node, "to": to, "key": key, "why": why, "tried": edges}
        yield {**last, "id": id, "kind": "decision", "data": details}
    position = row["position"]
    yield {**last, "data": {"checkpoint": row["node"], "step": position["step"], "next": position["next"]}}


def _end_of_execution(row: sa.RowMapping, last: EventRow) -> Iterator[EventRow]:
    """Yield the end of an execution: its fork, or its completion with each of its cells."""
    if row["number"] is not None:
        yield {**last, "kind": FORKED, "data": {"children": row["number"], "by": row["position"]["next"]}}
        return
    combinations = row["combinations"]
    values = {
        name: score if isinstance(score, str | None) else float(score) for name, score in (row["data"] or {}).items()
    }
    first = last["id"] - len(combinations)
    final_state = {} if row["more"] is None else {"result": in_order(visible_state(row["more"]), {})}
    yield {**last, "id": first, "kind": COMPLETED, "data": {"cells": len(combinations), **final_state}}
    for id, combination in enumerate(combinations, first + 1):
        details = {"case": row["case"], "repeat": row["repeat"], "scores": values, "combination": combination}
        yield {**last, "id": id, "data": details}


def _call(row: sa.RowMapping, last: EventRow) -> Iterator[EventRow]:
    """Yield a call of a model or of a tool that an attempt recorded."""
    is_tool, details = row["kind_of_call"] == "tool.called", _of_attempt(row)
    details |= {"tool" if is_tool else "model": row["name"], "duration_s": row["duration_s"]}
    details |= {"tokens_in": row["tokens_in"], "tokens_out": row["tokens_out"], "usd": row["usd"]}
    details |= {} if row["cached"] is None else {"cached": row["cached"]}
    yield {**last, "kind": row["kind_of_call"], "data": details | _error(row)}


def _invocation(row: sa.RowMapping, last: EventRow) -> Iterator[EventRow]:
    """Yield a call of a tool that the workflow declares."""
    details = {**_of_attempt(row), "tool": row["name"], "number": row["number"], "duration_s": row["duration_s"]}
    yield {**last, "data": details | _error(row)}


def _of_attempt(row: sa.RowMapping) -> dict[str, Any]:
    return {**_task(row), "node_run": row["node_run"], "attempt": row["attempt"]}


def _error(row: sa.RowMapping) -> dict[str, Any]:
    return {} if row["error"] is None else {"error": row["error"]}


_NODE_RUN: dict[str, sa.ColumnElement[Any]] = {name: node_runs.c[name] for name in ("node", "task", "variant", "visit")}
_holds_start = sa.and_(node_runs.c.started_transaction.is_not(None), node_runs.c.started_event.is_(None))
_OF_CASE = sa.select(cases.c.id).where(
    cases.c.sweep_id == executions.c.sweep_id, cases.c.number == executions.c.case_number
)
# All cells of an execution have the same scores. Joined by the metrics, which come before the case in their index.
# The empty text makes SQLite begin there. Otherwise it may read all scores of the sweep for each execution.
_OF_CELL = (
    sa.select(scores.c.metric, scores.c.value, scores.c.error)
    .join(metrics, sa.and_(metrics.c.sweep_id == scores.c.sweep_id, scores.c.metric == metrics.c.name.concat("")))
    .where(
        metrics.c.sweep_id == executions.c.sweep_id,
        scores.c.case_number == executions.c.case_number,
        scores.c.repeat == executions.c.repeat,
        scores.c.combination == executions.c.combinations[0].as_integer(),
    )
    .order_by(metrics.c.number)
    .correlate(executions)
    .subquery()
)
_SCORES = sa.select(score_object(_OF_CELL.c.metric, _OF_CELL.c.value, _OF_CELL.c.error))
_RESULT = sa.select(checkpoints.c.state).where(checkpoints.c.id == executions.c.head_id).correlate(executions)
_has_forked = executions.c.children.is_not(None)
_FORK = sa.select(checkpoints.c.position).where(checkpoints.c.id == executions.c.head_id, _has_forked)
_FORK = _FORK.correlate(executions)
# Decisions of older versions have no tried edges, and no ids in the log.
_DECIDED = (decisions.c.checkpoint_id == checkpoints.c.id, decisions.c.tried.is_not(None))
_DECISIONS = sa.select(
    rows_array(*(decisions.c[name] for name in ("number", "node", "to", "key", "why", "tried")))
).where(*_DECIDED)
_KIND_OF_CALL = sa.case((calls.c.tool.is_not(None), "tool.called"), else_="model.called")

DERIVED: Final = (
    Derived(
        ("variant.applied", "node_run.started"),
        node_runs.c.started_transaction,
        node_runs.c.started_event,
        node_runs.c.started_at,
        {**_NODE_RUN, "name": node_runs.c.replaces},
        _start_of_node_run,
        node_runs.c.execution_id,
        (node_runs, node_runs.c.id),
        only={"variant.applied": node_runs.c.replaces.is_not(None)},
    ),
    # After the entry above: `keep_events` has stored the starts of these rows by then, and would store them twice.
    Derived(
        ("variant.applied", "node_run.started", "node_run.succeeded"),
        node_runs.c.ended_transaction,
        node_runs.c.ended_event,
        node_runs.c.ended_at,
        {
            **_NODE_RUN,
            "attempt": node_runs.c.attempts,
            "duration_s": node_runs.c.duration_s,
            "usd": node_runs.c.usd,
            "more": node_runs.c.writes,
            "name": node_runs.c.replaces,
            "begun_at": sa.case((_holds_start, node_runs.c.started_at)),
        },
        _success_of_node_run,
        node_runs.c.execution_id,
        (node_runs, node_runs.c.id),
        only={
            "variant.applied": sa.and_(_holds_start, node_runs.c.replaces.is_not(None)),
            "node_run.started": _holds_start,
        },
        mark=node_runs.c.started_transaction,
    ),
    Derived(
        ("decision", "checkpoint.created"),
        checkpoints.c.created_transaction,
        checkpoints.c.created_event,
        checkpoints.c.created_at,
        {
            "position": checkpoints.c.position,
            "node": checkpoints.c.id,
            "more": _DECISIONS.correlate(checkpoints).scalar_subquery(),
        },
        _checkpoint,
        checkpoints.c.execution_id,
        (checkpoints, checkpoints.c.id),
        only={"decision": sa.exists().where(*_DECIDED).correlate(checkpoints)},
        counts={"decision": sa.select(sa.func.count()).where(*_DECIDED).correlate(checkpoints).scalar_subquery()},
    ),
    Derived(
        (FORKED, COMPLETED, "cell.succeeded"),
        executions.c.ended_transaction,
        executions.c.ended_event,
        executions.c.finished_at,
        {
            "data": _SCORES.scalar_subquery(),
            "case": _OF_CASE.scalar_subquery(),
            "repeat": executions.c.repeat,
            "combinations": executions.c.combinations,
            "more": _RESULT.scalar_subquery(),
            "number": executions.c.children,
            "position": _FORK.scalar_subquery(),
        },
        _end_of_execution,
        executions.c.id,
        (executions, executions.c.id),
        only={FORKED: _has_forked, COMPLETED: ~_has_forked, "cell.succeeded": ~_has_forked},
        counts={"cell.succeeded": sa.case((_has_forked, 0), else_=array_length(executions.c.combinations))},
    ),
    Derived(
        ("model.called", "tool.called"),
        calls.c.logged_transaction,
        calls.c.logged_event,
        calls.c.at,
        {
            **{name: node_runs.c[name] for name in ("node", "task", "variant")},
            "name": sa.func.coalesce(calls.c.tool, calls.c.model),
            "kind_of_call": _KIND_OF_CALL,
            "node_run": calls.c.node_run_id,
            "error": error_in_json(calls.c.response),
            **{name: calls.c[name] for name in ("attempt", "duration_s", "usd", "tokens_in", "tokens_out", "cached")},
        },
        _call,
        node_runs.c.execution_id,
        (node_runs, calls.c.node_run_id),
        joined=calls.join(node_runs, node_runs.c.id == calls.c.node_run_id),
        only={"model.called": calls.c.tool.is_(None), "tool.called": calls.c.tool.is_not(None)},
    ),
    Derived(
        ("tool.called",),
        invocations.c.logged_transaction,
        invocations.c.logged_event,
        invocations.c.at,
        {
            **{name: node_runs.c[name] for name in ("node", "task", "variant")},
            "name": invocations.c.tool,
            "node_run": invocations.c.node_run_id,
            **{name: invocations.c[name] for name in ("attempt", "number", "duration_s", "error")},
        },
        _invocation,
        node_runs.c.execution_id,
        (node_runs, invocations.c.node_run_id),
        joined=invocations.join(node_runs, node_runs.c.id == invocations.c.node_run_id),
    ),
)
