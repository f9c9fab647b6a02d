"""Roll an execution back to a checkpoint, and undo a rollback."""

from __future__ import annotations

from dataclasses import dataclass

from wtb.authoring.graph import queue_of
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Reason
from wtb.core.documents.questions import CompensationDocument
from wtb.core.errors import InputError, did_you_mean
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.compensation import undo
from wtb.operations.payers import check_payer
from wtb.operations.running.preparing import rebind
from wtb.planning.binding import Bound
from wtb.store.control.pending_rollbacks import finish_first, release, unfinished
from wtb.store.control.rollback import Ending, begin, end, last_rollback
from wtb.store.control.tool_calls import has_calls
from wtb.store.database import Database
from wtb.store.read import queries
from wtb.store.read.lineage import inside, line, marks, rollbacks_of
from wtb.store.read.references import find_one
from wtb.store.rows.executions import ExecutionRow, Mark


@dataclass(frozen=True)
class NamedCheckpoint:
    """A checkpoint to go back to, or to fork from.

    Attributes:
        id: Its id.
        next: The nodes that follow it.
        words: The checkpoint in words, for people.
    """

    id: str
    next: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class RolledBack:
    """An execution that was rolled back, or whose rollback was undone. It is paused.

    Attributes:
        execution: Its id.
        head: Its head, a new checkpoint.
        left: The checkpoint that was its head before.
        to: Where its head is below.
        was: Its status before.
        nodes: What was rolled back, the last first.
        superseded: Ids of executions that had forked from what it left.
        calls: What became of calls of tools.
    """

    execution: str
    head: str
    left: str
    to: NamedCheckpoint
    was: str
    nodes: tuple[str, ...]
    superseded: tuple[str, ...]
    calls: CompensationDocument


@checked
@audited
def rollback(
    context: Context, ref: str, to: str, *, reason: Reason | None = None, bound: Bound | None = None
) -> RolledBack:
    """Move the head of an execution back below a checkpoint, or the exit of a node's last visit, and pause it there.

    The process that runs it loses it at once, and what had forked from the line that it leaves is superseded; its cells
    are to be done again. A rollback that was interrupted is continued.

    Args:
        context: Where, and who does it.
        ref: The execution's id, or the beginning of it.
        to: A checkpoint's id, or a node.
        reason: A reason for people.
        bound: The code, which is needed if calls of tools are to be undone; imported then if None.

    Returns:
        What it left, and what became of calls of tools.

    Raises:
        InputError: If the target is not on its line.
        ConflictError: If it cannot be rolled back, or if another process is doing so.
    """
    execution = find_one(context.database, ref)
    check_payer(context, queries.find_sweep(context.database, execution.sweep_id))
    target = find_checkpoint(context.database, execution, to)
    because = f"rolled back to {target.words} {context.because(reason)}"
    bound = bound or _code(context, execution)
    ending = Ending(context.by, reason, because, target.words, _queue(execution, target, bound))
    return _move(context, execution, target, bound, ending)


@checked
@audited
def undo_rollback(
    context: Context, ref: str, *, reason: Reason | None = None, bound: Bound | None = None
) -> RolledBack:
    """Undo the last rollback of an execution: its head is again at the end of the line that it left, paused.

    Tools that were undone on that line are called again, in their order. What had forked from it stays superseded: it
    forks again when it continues.

    Args:
        context: Where, and who does it.
        ref: The execution's id, or the beginning of it.
        reason: A reason for people.
        bound: The code, which is needed if tools are to be called; imported then if None.

    Returns:
        The same as `rollback`.

    Raises:
        InputError: If `wtb gc` removed the line that it left.
        ConflictError: If nothing was rolled back, or if something has run since.
    """
    database = context.database
    execution = find_one(database, ref)
    check_payer(context, queries.find_sweep(database, execution.sweep_id))
    under_way = unfinished(execution)
    if under_way is not None and not under_way["redoes"]:
        raise finish_first(execution, "taken forward again")
    last = last_rollback(database, execution)
    with database.read() as connection:
        found = marks(connection, [last.from_id])
    if last.from_id not in found:
        raise InputError(f"the line that execution {execution.id} left is gone: `wtb gc` removed it")
    target = _named(found[last.from_id])
    because = f"its rollback was undone {context.because(reason)}"
    bound = bound or _code(context, execution)
    ending = Ending(context.by, reason, because, target.words, _queue(execution, target, bound), last.id)
    return _move(context, execution, target, bound, ending)


def _code(context: Context, execution: ExecutionRow) -> Bound | None:
    """The code of an execution if it may have tools to undo: importing it takes longer than a rollback."""
    database, sweep_id = context.database, execution.sweep_id
    if not has_calls(database, sweep_id):
        return None
    if not context.imports:
        raise InputError(
            f"execution {execution.id} may have called tools that are to be undone, which takes the code: roll it back "
            f"where that is, beside the database"
        )
    return rebind(context, queries.find_sweep(database, sweep_id))


def _queue(execution: ExecutionRow, target: NamedCheckpoint, bound: Bound | None) -> str | None:
    """The queue that the next node asks for, where its code is known."""
    return execution.queue if bound is None else queue_of(bound.workflow, target.next)


def _move(
    context: Context, execution: ExecutionRow, target: NamedCheckpoint, bound: Bound | None, ending: Ending
) -> RolledBack:
    database = context.database
    leaving = begin(database, execution.id, target.id, ending)
    try:
        calls = undo(context, leaving, bound)
        head = leaving.head or end(database, leaving, ending, calls)
    finally:
        if leaving.head is None:
            release(database, leaving.execution)
    return RolledBack(
        execution.id,
        head,
        leaving.from_id,
        target,
        leaving.status,
        tuple(leaving.nodes),
        tuple(leaving.superseded),
        calls,
    )


def find_checkpoint(database: Database, execution: ExecutionRow, to: str) -> NamedCheckpoint:
    """Find a checkpoint of an execution by its id or the beginning of it, its name, or the node that made it last.

    It is on the execution's line, taken inside one of its nodes, or on a line that a rollback left.

    Raises:
        InputError: If there is none; it lists those that exist.
    """
    if execution.head_id is None:
        raise InputError(f"execution {execution.id} has not begun: there is nothing to go back to")
    with database.read() as connection:
        rollbacks = rollbacks_of(connection, [execution.id])
        found = marks(connection, [execution.head_id, *(one.from_id for one in rollbacks)])
        if to in found:
            return _named(found[to])
        here = line(found, execution.head_id)
        by_node = {writer[0]: mark for mark in here for writer in mark.writers}
        if to in by_node:
            return _named(by_node[to], to)
        taken = inside(connection, found)
    every = {**found, **{one.id: one for one in taken}}
    if to in every:
        return _named(every[to])
    by_name = {mark.name: mark for mark in taken if mark.name is not None}
    if to in by_name:
        return _named(by_name[to])
    starting = [mark for id, mark in every.items() if to and id.startswith(to)]
    if len(starting) == 1:
        return _named(starting[0])
    if starting:
        raise InputError(f"{to!r} is the beginning of {len(starting)} checkpoints' ids; give more of it")
    names = [*by_node, *by_name]
    listed = ", ".join(map(repr, names[:20])) + (", ..." if len(names) > 20 else "")
    listed = f"; it can go back to: {listed}" if names else "; no node of it has run yet"
    raise InputError(
        f"execution {execution.id} has no checkpoint {to!r} on its line{did_you_mean(to, names)}{listed} (or a "
        f"checkpoint of `wtb history {execution.id}`)"
    )


def _named(mark: Mark, node: str | None = None) -> NamedCheckpoint:
    if node is None and mark.writers:
        node = mark.writers[-1][0]
    words = f"{node} (checkpoint {mark.id})" if node else f"checkpoint {mark.id}"
    if mark.name:
        words = f"{mark.name!r} (checkpoint {mark.id})"
    elif mark.parent_id is None:
        words = f"its input (checkpoint {mark.id})"
    return NamedCheckpoint(mark.id, tuple(mark.position["next"]), words)
