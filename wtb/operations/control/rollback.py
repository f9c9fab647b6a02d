"""Roll an execution back to a checkpoint, and undo a rollback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wtb.authoring.code.calling import Caller
from wtb.authoring.graph import queue_of
from wtb.authoring.tools import ToolCall, call_tool
from wtb.core.arguments import Reason, checked
from wtb.core.documents.questions import CompensationDocument, ToolCallDocument
from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.serialization.plain_json import readable
from wtb.core.tree.checkpoints import Checkpoint
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.sweep_context import in_processes
from wtb.execution.sandbox.pool import InProcesses
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_payer
from wtb.operations.running.preparing import rebind
from wtb.planning.binding import Bound
from wtb.store.control import pending_rollbacks
from wtb.store.control.rollback import Ending, Leaving, begin, end, last_rollback
from wtb.store.database import Database
from wtb.store.files.safe_directories import remove_tree
from wtb.store.process_identity import identity
from wtb.store.read import queries
from wtb.store.read.details import find_one, read_history
from wtb.store.read.queries import find_sweep
from wtb.store.runs.leases import register
from wtb.store.runs.slots import end_runner
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.sweeps import SweepRow

Calling = Callable[[ToolCall], "str | Failure"]


def undo(context: Context, leaving: Leaving, bound: Bound | None) -> CompensationDocument:
    """Undo the calls of tools on the line that a rollback leaves, newest first, and repeat others.

    Each is recorded before and after it, so an interruption repeats no call that is known to have ended; a call in
    progress is made again, since its outcome is unknown. A reverse that fails does not stop the others.

    Args:
        context: The place of the execution.
        leaving: The rollback.
        bound: The code with the tools.

    Raises:
        InputError: There are calls to undo and no code is given.
    """
    database, execution = context.database, leaving.execution
    shared = [_call(call) for call in leaving.shared]
    outcomes: CompensationDocument = {**pending_rollbacks.no_calls(), "shared": shared}
    if not leaving.undo and not leaving.redo:
        return outcomes
    if bound is None:
        raise InputError("tools must be undone, and the workflow's code is missing")
    tools = bound.workflow.tools
    reversible = [call for call in leaving.undo if call.tool in tools and tools[call.tool].reverse is not None]
    outcomes["irreversible"] = [_call(call) for call in leaving.undo if call not in reversible]
    if not reversible and not leaving.redo:
        return outcomes
    with _calling(context, bound, find_sweep(database, execution.sweep_id)) as calling:
        for call in reversible:
            # Recorded before the call, so that a crash in between leaves a trace of the attempt.
            pending_rollbacks.begin_turn(database, execution, call)
            clock = time.perf_counter()
            answer = calling(ToolCall(call.tool, "reverse", call.arguments, call.result))
            if isinstance(answer, Failure):
                outcomes["failed"].append({**_call(call), "error": str(answer)})
                continue
            pending_rollbacks.note_undone(database, execution, call, time.perf_counter() - clock)
            outcomes["undone"].append(_call(call) if call.undone_at is None else {**_call(call), "again": True})
        for call in leaving.redo:
            pending_rollbacks.begin_turn(database, execution, call)
            clock = time.perf_counter()
            answer = calling(ToolCall(call.tool, "forward", call.arguments))
            if isinstance(answer, Failure):
                outcomes["failed"].append({**_call(call), "error": str(answer)})
                continue
            pending_rollbacks.note_made_again(database, execution, call, time.perf_counter() - clock, answer)
            outcomes["redone"].append(_call(call))
    return outcomes


def _call(call: pending_rollbacks.CallOfTool) -> ToolCallDocument:
    return {"tool": call.tool, "node": call.node, "arguments": readable(call.arguments.encode())}


@contextmanager
def _calling(context: Context, bound: Bound, sweep: SweepRow) -> Iterator[Calling]:
    """Yield a function that calls tools, in a node process if nodes run in processes."""
    if bound.pool != "process":
        caller = Caller()
        try:
            yield lambda call: call_tool(bound.workflow.tools, call, caller)
        finally:
            caller.close()
        return
    runner = identity()  # so that a node process that outlives us is found by the cleanup
    register(context.database, runner)
    home = context.workspaces.of_project(sweep.project)
    mine = home.of_runner(runner.id, "undoing", new_id())
    code = in_processes(bound, mine, runner.id, 1)
    assert isinstance(code, InProcesses), "nodes run in processes"
    code.accept_files(WrittenFiles(context.database, sweep).cover)
    try:
        yield code.call_tool
    finally:
        code.close()
        remove_tree(mine.root)
        end_runner(context.database, runner.id)


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
    context: Context, ref: str, to: str, reason: Reason | None = None, *, bound: Bound | None = None
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
    return _move(context, execution, target, bound, reason, f"rolled back to {target.words}")


@checked
@audited
def undo_rollback(
    context: Context, ref: str, reason: Reason | None = None, *, bound: Bound | None = None
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
        InputError: If `wtb admin gc` removed the line that it left.
        ConflictError: If nothing was rolled back, or if something has run since.
    """
    database = context.database
    execution = find_one(database, ref)
    check_payer(context, queries.find_sweep(database, execution.sweep_id))
    under_way = pending_rollbacks.unfinished(execution)
    if under_way is not None and not under_way["redoes"]:
        raise pending_rollbacks.finish_first(execution, "taken forward again")
    last = last_rollback(database, execution)
    line = queries.line(database, last.from_id)
    if not line:
        raise InputError(f"the former line of execution {execution.id} was removed by `wtb admin gc`")
    return _move(context, execution, _named(line[-1]), bound, reason, "its rollback was undone", last.id)


def _code(context: Context, execution: ExecutionRow) -> Bound | None:
    """Return the code of an execution if it may have tools to undo, since importing takes longer than a rollback."""
    database, sweep_id = context.database, execution.sweep_id
    if not pending_rollbacks.has_calls(database, sweep_id):
        return None
    if not context.imports:
        raise InputError(
            f"execution {execution.id} may have called tools, and undoing them needs the code; roll it back on a "
            f"machine with the code and the database"
        )
    return rebind(context, queries.find_sweep(database, sweep_id))


def _move(
    context: Context,
    execution: ExecutionRow,
    target: NamedCheckpoint,
    bound: Bound | None,
    reason: str | None,
    what: str,
    undoes: str | None = None,
) -> RolledBack:
    """Move the head of an execution to a checkpoint, and undo or redo the calls of tools in between."""
    database = context.database
    bound = bound or _code(context, execution)
    queue = execution.queue if bound is None else queue_of(bound.workflow, target.next)
    ending = Ending(context.by, reason, f"{what} {context.because(reason)}", target.words, queue, undoes)
    leaving = begin(database, execution.id, target.id, ending)
    try:
        calls = undo(context, leaving, bound)
        head = leaving.head or end(database, leaving, ending, calls)
    # The rollback is open until `end`; whatever fails in between, another attempt may continue it.
    finally:
        if leaving.head is None:
            pending_rollbacks.release(database, leaving.execution)
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
