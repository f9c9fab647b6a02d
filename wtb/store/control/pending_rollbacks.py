"""Rollbacks that have begun and whose head has not moved yet: their holders, acts that wait for them, and tool calls.

Such an execution is paused, and its `asked` holds the rollback: to_id, redoes, was, superseded, and holder with until.
The tool calls are those between two lines of checkpoints; the results of reversing them are recorded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from wtb.core.documents.questions import CompensationDocument
from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.values import Json
from wtb.store.bulk import fetch_records
from wtb.store.cell_status import named_executions, of_place
from wtb.store.database import Database
from wtb.store.log import add_execution_event
from wtb.store.process_identity import ProcessIdentity, identity, may_live
from wtb.store.read.lineage import marks
from wtb.store.records import Mark
from wtb.store.tables.control import InvocationRow
from wtb.store.tables.executions import ExecutionRow, StoredProcess, UnfinishedRollback
from wtb.store.tables.schema import cells, combinations, executions, invocations, node_runs, now
from wtb.store.transactions import clock

if TYPE_CHECKING:
    from wtb.core.documents.workflows import WorkflowDocument

LEASE_S = 600.0  # after which a process on another machine counts as gone, if it finished no reverse


def unfinished(row: ExecutionRow) -> UnfinishedRollback | None:
    """Return the unfinished rollback of an execution, if it has one."""
    return row.asked.get("rollback") if row.asked is not None and row.status == "paused" else None


def finish_first(row: ExecutionRow, what: str) -> ConflictError:
    """Return the error for an act that has to wait for the rollback of an execution. `what` is a participle:
    "resumed".
    """
    request = row.asked
    assert request is not None, "it is in a rollback"
    return ConflictError(
        f"execution {row.id} cannot be {what}: it is {request['to']}, and that is not done; finish it first: "
        f"{command(row.id, request['rollback'])}"
    )


def command(execution_id: str, rollback: UnfinishedRollback) -> str:
    return (
        f"wtb rollback {execution_id} --undo"
        if rollback["redoes"]
        else f"wtb rollback {execution_id} --to {rollback['to_id']}"
    )


def find_resumable(
    connection: sa.Connection, row: ExecutionRow, to_id: str, redoes: str | None
) -> UnfinishedRollback | None:
    """Return the unfinished rollback that a rollback to `to_id` continues, if any.

    Raises:
        ConflictError: If another process is at it, or it leads elsewhere.
    """
    pending, request = unfinished(row), row.asked
    if pending is None or request is None:
        return None
    # A process on this machine is looked for. Only one on another machine has to let its time run out.
    holder = pending["holder"]
    if holder is not None and may_live(ProcessIdentity(**holder), expired=pending["until"] < clock(connection)):
        raise ConflictError(
            f"execution {row.id} is {request['to']} {request['reason']} just now (process "
            f"{holder['pid']} on {holder['host']}); wait until that is done, or cancel the execution"
        )
    if (pending["to_id"], pending["redoes"]) != (to_id, redoes):
        raise finish_first(row, "taken elsewhere")
    return pending


def start(
    connection: sa.Connection, *, to_id: str, redoes: str | None, status_before: str, superseded: list[str]
) -> UnfinishedRollback:
    """Return the record of a rollback that this process performs from now on."""
    return {
        "to_id": to_id,
        "redoes": redoes,
        "was": status_before,
        "superseded": superseded,
        "holder": _this_process(),
        "until": clock(connection) + LEASE_S,
    }


def _this_process() -> StoredProcess:
    me = identity()
    return {
        "id": me.id,
        "host": me.host,
        "boot": me.boot,
        "pid": me.pid,
        "process_started_at": me.process_started_at,
    }


def renew(connection: sa.Connection, execution: ExecutionRow) -> None:
    """Extend the time of the process that performs the rollback of an execution."""
    request = execution.asked
    assert request is not None, "it is in a rollback"
    rollback = {**request["rollback"], "until": clock(connection) + LEASE_S}
    mine = executions.c.id == execution.id
    connection.execute(executions.update().where(mine).values(asked={**request, "rollback": rollback}))


def release(database: Database, execution: ExecutionRow) -> None:
    """Let others finish a rollback that was interrupted here. Does nothing if it has ended or is another process's."""
    request = execution.asked
    if request is None:
        return
    # With another token, the execution was reclaimed, or the rollback is finished.
    mine = executions.c.id == execution.id, executions.c.token == execution.token
    update = executions.update().where(*mine, executions.c.status == "paused", executions.c.asked.is_not(None))
    database.execute(update.values(asked={**request, "rollback": {**request["rollback"], "holder": None}}))


def superseded_by(rollback: UnfinishedRollback | None, ids: Sequence[str]) -> list[str]:
    """Return the executions that a rollback supersedes, with those of an earlier, interrupted try."""
    return list(dict.fromkeys([*(rollback["superseded"] if rollback else ()), *ids]))


class CallOfTool(InvocationRow):
    """A call of a declared tool, with the node that made it and its variant."""

    node: str
    variant: str


class Calls(NamedTuple):
    """The tool calls that a rollback has to deal with.

    Attributes:
        undo: Calls to reverse, the newest first.
        redo: Calls to make again because an earlier rollback reversed them, the oldest first.
        shared: Calls to leave alone because other executions depend on them.
    """

    undo: Sequence[CallOfTool] = ()
    redo: Sequence[CallOfTool] = ()
    shared: Sequence[CallOfTool] = ()


@frozen(slots=True)
class Way:
    """The way from one line of checkpoints to another, and the other executions on the first line.

    Attributes:
        current_line: The present line, the oldest checkpoint first.
        target_line: The line of the target, the oldest checkpoint first.
        descendant_rows: Executions that were made from this one.
        superseded_ids: Executions that earlier rollbacks superseded.
        superseded: Executions that this rollback supersedes.
        left_before: Checkpoints from which earlier rollbacks continued; node runs that started from them belong to
            those.
    """

    current_line: Sequence[Mark]
    target_line: Sequence[Mark]
    descendant_rows: Sequence[ExecutionRow]
    superseded_ids: set[str]
    superseded: Sequence[str]
    left_before: set[str]


def no_calls() -> CompensationDocument:
    """Return the outcome of a rollback without calls."""
    return {"undone": [], "redone": [], "irreversible": [], "failed": [], "shared": []}


def calls_between(connection: sa.Connection, row: ExecutionRow, graph: WorkflowDocument, way: Way) -> Calls:
    """Return the tool calls on the way from one line to another."""
    # Most sweeps call no tools, and the rest takes several queries.
    if not _has_calls(connection, row.sweep_id):
        return Calls()
    current_ids, target = {mark.id for mark in way.current_line}, way.target_line[-1]
    from_here = current_ids - {mark.id for mark in way.target_line} | {target.id}
    if target.inside is not None and target.parent_id is not None:
        from_here.add(target.parent_id)  # whose node runs went on after it
    from_here -= way.left_before
    started = sa.or_(
        node_runs.c.checkpoint_id.in_(sorted(from_here)), node_runs.c.execution_id.in_(list(way.superseded))
    )
    calls = _invocations(connection, row, started)
    variants_of = _make_variant_lookup(connection, row, graph)
    calls = [call for call in calls if call.variant in variants_of(call.node)]
    if target.inside is not None:
        kept_of = target.inside["node_run"]
        calls = [call for call in calls if call.node_run_id != kept_of or call.at > target.created_at]
    theirs = _stood_on(connection, row, way.descendant_rows, way.superseded_ids | set(way.superseded))
    undo = [call for call in calls if call.status == "done"]
    undo.sort(key=lambda call: (call.at, call.attempt, call.number), reverse=True)
    ahead = [writer[2] for mark in way.target_line if mark.id not in current_ids for writer in mark.writers]
    redo = [call for call in _invocations(connection, row, node_runs.c.id.in_(ahead)) if call.status == "undone"]
    redo.sort(key=lambda call: (call.at, call.attempt, call.number))
    return Calls(
        undo=[call for call in undo if call.node_run_id not in theirs],
        redo=redo,
        shared=[call for call in undo if call.node_run_id in theirs],
    )


def has_calls(database: Database, sweep_id: str) -> bool:
    """Return whether nodes of a sweep have called any tools."""
    with database.read() as connection:
        return _has_calls(connection, sweep_id)


def _has_calls(connection: sa.Connection, sweep_id: str) -> bool:
    query = sa.select(invocations.c.number).join(node_runs, node_runs.c.id == invocations.c.node_run_id)
    return connection.execute(query.where(node_runs.c.sweep_id == sweep_id).limit(1)).first() is not None


def _invocations(connection: sa.Connection, row: ExecutionRow, condition: sa.ColumnElement[bool]) -> list[CallOfTool]:
    query = sa.select(invocations, node_runs.c.node, node_runs.c.variant)
    query = query.join(node_runs, node_runs.c.id == invocations.c.node_run_id)
    return fetch_records(connection, CallOfTool, query.where(node_runs.c.sweep_id == row.sweep_id, condition))


def _make_variant_lookup(
    connection: sa.Connection, row: ExecutionRow, graph: WorkflowDocument
) -> Callable[[str], set[str | None]]:
    """Return a function that returns the variants which the cells of an execution choose for a node."""
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


def _stood_on(
    connection: sa.Connection, row: ExecutionRow, descendant_rows: Sequence[ExecutionRow], superseded_ids: set[str]
) -> set[str]:
    """Return the node runs on lines of other executions that count: open ones, ones that a cell names, and manual
    forks.
    """
    mine = {row.id, *(child.id for child in descendant_rows)}
    of_case = cells.c.case_number == row.case_number, cells.c.repeat == row.repeat
    named = executions.c.id.in_(named_executions(row.sweep_id, *of_case))
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.status).where(
        *of_place(executions, row),
        sa.or_(executions.c.status.in_(OPEN_EXECUTIONS), executions.c.origin == "manual", named),
        executions.c.status != "forked",
    )
    heads = [
        execution.head_id
        for execution in connection.execute(query)
        if execution.id not in mine and execution.id not in superseded_ids
    ]
    return {writer[2] for mark in marks(connection, heads).values() for writer in mark.writers}


def _same(call: CallOfTool) -> list[sa.ColumnElement[bool]]:
    return [invocations.c[name] == getattr(call, name) for name in ("node_run_id", "attempt", "number")]


def begin_turn(database: Database, execution: ExecutionRow, call: CallOfTool) -> None:
    """Record that a call is about to be reversed or repeated: it gets `undone_at`, and keeps its status.

    Raises:
        ConflictError: If somebody continued the execution meanwhile.
    """
    _turn(database, execution, call, {"status": call.status})


def note_undone(database: Database, execution: ExecutionRow, call: CallOfTool, duration_s: float) -> None:
    """Record that a call was reversed, and how long that took. Raises ConflictError as `begin_turn` does."""
    _turn(database, execution, call, {"status": "undone"}, ("tool.reversed", {"duration_s": duration_s}))


def note_made_again(
    database: Database, execution: ExecutionRow, call: CallOfTool, duration_s: float, reply: str
) -> None:
    """Record that a call was repeated, and how long that took. Raises ConflictError as `begin_turn` does."""
    change = {"status": "done", "undone_at": None, "result": reply}
    _turn(database, execution, call, change, ("tool.called", {"duration_s": duration_s, "again": True}))


def _turn(
    database: Database,
    execution: ExecutionRow,
    call: CallOfTool,
    change: Mapping[str, str | None],
    event: tuple[str, Mapping[str, Json]] | None = None,
) -> None:
    """Change the row of a call, and log an event: its kind and what its data has beside the call."""
    claimed = executions.c.id == execution.id, executions.c.token == execution.token
    mine = sa.select(executions.c.id).where(*claimed, executions.c.status == "paused")
    with database.write() as connection:
        if connection.execute(mine.with_for_update(key_share=True)).first() is None:
            raise ConflictError(
                f"execution {execution.id} was continued by another process while its tools were undone; if you still "
                f"want to, roll it back again"
            )
        # Reverses may take long; each one that ends shows that this process still performs the rollback.
        renew(connection, execution)
        connection.execute(invocations.update().where(*_same(call)).values({"undone_at": now(), **change}))
        if event is not None:
            kind, details = event
            names = ("node", "variant", "node_run_id", "attempt", "tool", "number")
            called = {name.removesuffix("_id"): getattr(call, name) for name in names}
            add_execution_event(connection, execution, kind, **called, **details)
