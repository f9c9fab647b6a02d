"""Undo calls of tools by their reverses, and make them again: in order, and once if possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wtb.authoring.code.calling import Caller
from wtb.authoring.context.tool_replay import ToolCall, call_tool
from wtb.core.documents.questions import CompensationDocument, ToolCallDocument
from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.ids import new_id
from wtb.core.serialization.plain_json import readable
from wtb.execution.runtime.code_drift import WrittenFiles
from wtb.execution.runtime.sweep_context import in_processes
from wtb.execution.sandbox.pool import InProcesses
from wtb.operations.context import Context
from wtb.planning.binding import Bound
from wtb.store.control.rollback import Leaving
from wtb.store.control.tool_calls import CallOfTool, begin_turn, no_calls, note_made_again, note_undone
from wtb.store.files.safe_directories import remove_tree
from wtb.store.process_identity import identity
from wtb.store.read.queries import find_sweep
from wtb.store.runs.leases import register
from wtb.store.runs.slots import end_runner
from wtb.store.tables.sweeps import SweepRow

Calling = Callable[[ToolCall], "str | Failure"]


def undo(context: Context, leaving: Leaving, bound: Bound | None) -> CompensationDocument:
    """Undo the calls of tools on the line that a rollback leaves, the newest first, and make others again.

    Each is recorded before and after it, so that an interruption repeats none that is known to have ended; the one that
    was under way is called again, since it is unknown how far it came. A reverse that fails does not stop the others.

    Args:
        context: Where the execution is.
        leaving: The rollback.
        bound: The code, which has the tools.

    Raises:
        InputError: If there are calls to undo and no code is given.
    """
    database, execution = context.database, leaving.execution
    shared = [_call(call) for call in leaving.shared]
    outcomes: CompensationDocument = {**no_calls(), "shared": shared}
    if not leaving.undo and not leaving.again:
        return outcomes
    if bound is None:
        raise InputError("tools are to be undone, and the workflow's code is not given")
    tools = bound.workflow.tools
    reversible = [call for call in leaving.undo if call.tool in tools and tools[call.tool].reverse is not None]
    outcomes["irreversible"] = [_call(call) for call in leaving.undo if call not in reversible]
    if not reversible and not leaving.again:
        return outcomes
    with _calling(context, bound, find_sweep(database, execution.sweep_id)) as calling:
        for call in reversible:
            begin_turn(database, execution, call)
            clock = time.perf_counter()
            answer = calling(ToolCall(call.tool, "reverse", call.arguments, call.result))
            if isinstance(answer, Failure):
                outcomes["failed"].append({**_call(call), "error": str(answer)})
                continue
            note_undone(database, execution, call, time.perf_counter() - clock)
            outcomes["undone"].append(_call(call) if call.undone_at is None else {**_call(call), "again": True})
        for call in leaving.again:
            begin_turn(database, execution, call)
            clock = time.perf_counter()
            answer = calling(ToolCall(call.tool, "forward", call.arguments))
            if isinstance(answer, Failure):
                outcomes["failed"].append({**_call(call), "error": str(answer)})
                continue
            note_made_again(database, execution, call, time.perf_counter() - clock, answer)
            outcomes["redone"].append(_call(call))
    return outcomes


def _call(call: CallOfTool) -> ToolCallDocument:
    return {"tool": call.tool, "node": call.node, "arguments": readable(call.arguments.encode())}


@contextmanager
def _calling(context: Context, bound: Bound, sweep: SweepRow) -> Iterator[Calling]:
    """Where tools are called: in a node process, where nodes run in such."""
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
