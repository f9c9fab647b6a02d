"""Roll an execution back to a checkpoint, and undo a rollback."""

from __future__ import annotations

from wtb.authoring.graph import queue_of
from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Reason
from wtb.core.classes.frozen import frozen
from wtb.core.documents.questions import CompensationDocument
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import Checkpoint
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
from wtb.store.read.histories import read_history
from wtb.store.read.references import find_one
from wtb.store.tables.executions import ExecutionRow


@frozen
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


@frozen
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
    line = queries.line(database, last.from_id)
    if not line:
        raise InputError(f"the line that execution {execution.id} left is gone: `wtb gc` removed it")
    target = _named(line[-1])
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
    history = read_history(database, execution)
    checkpoint = history.resolve(to)
    return _named(checkpoint, to if any(writer.node == to for writer in checkpoint.writers) else None)


def _named(checkpoint: Checkpoint, node: str | None = None) -> NamedCheckpoint:
    if node is None and checkpoint.writers:
        node = checkpoint.writers[-1].node
    words = f"{node} (checkpoint {checkpoint.id})" if node else f"checkpoint {checkpoint.id}"
    if checkpoint.name:
        words = f"{checkpoint.name!r} (checkpoint {checkpoint.id})"
    elif checkpoint.parent is None:
        words = f"its input (checkpoint {checkpoint.id})"
    return NamedCheckpoint(checkpoint.id, checkpoint.position.next, words)
