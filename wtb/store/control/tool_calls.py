"""Calls of tools in the database: those on the way from one line of checkpoints to another, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.documents.questions import CompensationDocument
from wtb.core.errors import ConflictError
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.values import Json
from wtb.store.bulk import fetch_records
from wtb.store.cell_status import named_executions
from wtb.store.control.pending_rollbacks import renew
from wtb.store.database import Database
from wtb.store.events import add_execution_event
from wtb.store.read.lineage import marks
from wtb.store.rows.executions import Mark
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import cells, combinations, executions, invocations, node_runs, now

if TYPE_CHECKING:
    from wtb.core.documents.workflows.graphs import WorkflowDocument


class CallOfTool(InvocationRow):
    """A call of a declared tool, with the node that made it and its variant."""

    node: str
    variant: str


class Calls(NamedTuple):
    """What a rollback has to do about calls of tools.

    undo: to take back, the newest first. again: to make again, since an earlier rollback took them back, the oldest
    first. shared: left alone, since others stand on them.
    """

    undo: Sequence[CallOfTool] = ()
    again: Sequence[CallOfTool] = ()
    shared: Sequence[CallOfTool] = ()


@frozen(slots=True)
class Way:
    """From one line of checkpoints to another, and who else stands on the first one.

    here, there: the lines, the oldest checkpoint first. below: executions that were made from this one. over: those
    that earlier rollbacks superseded. superseded: those that this one does. left_before: checkpoints from which earlier
    rollbacks went on; what else had started from them is theirs.
    """

    here: Sequence[Mark]
    there: Sequence[Mark]
    below: Sequence[ExecutionRow]
    over: set[str]
    superseded: Sequence[str]
    left_before: set[str]


def no_calls() -> CompensationDocument:
    """What became of calls where there are none."""
    return {"undone": [], "redone": [], "irreversible": [], "failed": [], "shared": []}


def calls_between(connection: sa.Connection, row: ExecutionRow, graph: WorkflowDocument, way: Way) -> Calls:
    """The calls of tools on the way from one line to another."""
    if not _has_calls(connection, row.sweep_id):
        return Calls()
    here, target = {mark.id for mark in way.here}, way.there[-1]
    from_here = here - {mark.id for mark in way.there} | {target.id}
    if target.inside is not None and target.parent_id is not None:
        from_here.add(target.parent_id)  # whose node runs went on after it
    from_here -= way.left_before
    started = sa.or_(
        node_runs.c.checkpoint_id.in_(sorted(from_here)),
        node_runs.c.execution_id.in_(list(way.superseded)),
    )
    calls = _invocations(connection, row, started)
    chosen = _chosen(connection, row, graph)
    calls = [one for one in calls if one.variant in chosen(one.node)]
    if target.inside is not None:
        kept_of = target.inside["node_run"]
        calls = [one for one in calls if one.node_run_id != kept_of or one.at > target.created_at]
    theirs = _stood_on(connection, row, way.below, way.over | set(way.superseded))
    undo = [one for one in calls if one.status == "done"]
    undo.sort(key=lambda one: (one.at, one.attempt, one.number), reverse=True)
    ahead = [writer[2] for mark in way.there if mark.id not in here for writer in mark.writers]
    again = [one for one in _invocations(connection, row, node_runs.c.id.in_(ahead)) if one.status == "undone"]
    again.sort(key=lambda one: (one.at, one.attempt, one.number))
    return Calls(
        undo=[one for one in undo if one.node_run_id not in theirs],
        again=again,
        shared=[one for one in undo if one.node_run_id in theirs],
    )


def has_calls(database: Database, sweep_id: str) -> bool:
    """Whether nodes of a sweep have called any tools."""
    with database.read() as connection:
        return _has_calls(connection, sweep_id)


def _has_calls(connection: sa.Connection, sweep_id: str) -> bool:
    query = sa.select(invocations.c.number).join(node_runs, node_runs.c.id == invocations.c.node_run_id)
    return connection.execute(query.where(node_runs.c.sweep_id == sweep_id).limit(1)).first() is not None


def _invocations(connection: sa.Connection, row: ExecutionRow, condition: sa.ColumnElement[bool]) -> list[CallOfTool]:
    query = sa.select(invocations, node_runs.c.node, node_runs.c.variant)
    query = query.join(node_runs, node_runs.c.id == invocations.c.node_run_id)
    return fetch_records(connection, CallOfTool, query.where(node_runs.c.sweep_id == row.sweep_id, condition))


def _chosen(connection: sa.Connection, row: ExecutionRow, graph: WorkflowDocument) -> Callable[[str], set[str | None]]:
    """A function that gives the variants which the cells of an execution choose for a node."""
    defaults = {node["name"]: node["default"] for node in graph["nodes"]}
    if (own := row.choices) is not None:
        return lambda node: {own.get(node, defaults.get(node))}
    query = sa.select(combinations.c.number, combinations.c.choices)
    mine = set(row.combinations)
    every = [
        choices
        for number, choices in connection.execute(query.where(combinations.c.sweep_id == row.sweep_id))
        if number in mine
    ]
    return lambda node: {choices.get(node, defaults.get(node)) for choices in every}


def _stood_on(connection: sa.Connection, row: ExecutionRow, below: Sequence[ExecutionRow], over: set[str]) -> set[str]:
    """The node runs on lines of others that count: those that are open, that a cell names, or that people forked."""
    mine = {row.id, *(one.id for one in below)}
    here = cells.c.case_number == row.case_number, cells.c.repeat == row.repeat
    named = executions.c.id.in_(named_executions(row.sweep_id, *here))
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.status).where(
        executions.c.sweep_id == row.sweep_id,
        executions.c.case_number == row.case_number,
        executions.c.repeat == row.repeat,
        sa.or_(executions.c.status.in_(OPEN_EXECUTIONS), executions.c.origin == "manual", named),
        executions.c.status != "forked",
    )
    heads = [one.head_id for one in connection.execute(query) if one.id not in mine and one.id not in over]
    return {writer[2] for mark in marks(connection, heads).values() for writer in mark.writers}


def _same(call: CallOfTool) -> list[sa.ColumnElement[bool]]:
    return [invocations.c[name] == getattr(call, name) for name in ("node_run_id", "attempt", "number")]


def begin_turn(database: Database, execution: ExecutionRow, call: CallOfTool) -> None:
    """Note that a call is about to be undone or made again: it has `undone_at`, and its status is still the same.

    Raises:
        ConflictError: If somebody continued the execution meanwhile.
    """
    _turn(database, execution, call, {"status": call.status})


def note_undone(database: Database, execution: ExecutionRow, call: CallOfTool, duration_s: float) -> None:
    """Note that a call was undone by its reverse, which took so long. Raises ConflictError as `begin_turn` does."""
    _turn(database, execution, call, {"status": "undone"}, ("tool.reversed", {"duration_s": duration_s}))


def note_made_again(
    database: Database, execution: ExecutionRow, call: CallOfTool, duration_s: float, result: str
) -> None:
    """Note that a call was made again, which took so long. Raises ConflictError as `begin_turn` does."""
    change = {"status": "done", "undone_at": None, "result": result}
    _turn(database, execution, call, change, ("tool.called", {"duration_s": duration_s, "again": True}))


def _turn(
    database: Database,
    execution: ExecutionRow,
    call: CallOfTool,
    change: Mapping[str, str | None],
    event: tuple[str, Mapping[str, Json]] | None = None,
) -> None:
    """Change the row of a call, and log an event: its kind and what its data has beside the call."""
    held = executions.c.id == execution.id, executions.c.token == execution.token
    mine = sa.select(executions.c.id).where(*held, executions.c.status == "paused")
    with database.write() as connection:
        if connection.execute(mine.with_for_update(key_share=True)).first() is None:
            raise ConflictError(
                f"execution {execution.id} was taken up by somebody else while its tools were being undone; "
                f"roll it back again if that is still wanted"
            )
        renew(connection, execution)
        connection.execute(invocations.update().where(*_same(call)).values({"undone_at": now(), **change}))
        if event is not None:
            kind, data = event
            names = ("node", "variant", "node_run_id", "attempt", "tool", "number")
            called = {name.removesuffix("_id"): getattr(call, name) for name in names}
            add_execution_event(connection, execution, kind, **called, **data)
