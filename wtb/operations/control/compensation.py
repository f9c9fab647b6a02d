"""Undo calls of tools by their reverses, and make them again: in order, and once if possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from wtb.authoring.code.calling import Caller
from wtb.authoring.context.tool_replay import ToolCall, call_tool
from wtb.core.errors import InputError
from wtb.core.failures import Failure
from wtb.core.ids import new_id
from wtb.core.serialization.plain_json import readable
from wtb.execution.runtime.sweep_context import in_processes
from wtb.execution.sandbox.pool import InProcesses
from wtb.planning.binding import Bound
from wtb.store.control.rollback import Leaving
from wtb.store.control.tool_calls import CALL_OUTCOMES, turn
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.files.safe_directories import remove_tree
from wtb.store.files.workspaces import Workspaces
from wtb.store.process_identity import identity
from wtb.store.runs.leases import register
from wtb.store.runs.slots import end_runner

Document = dict[str, Any]
Call = Callable[[ToolCall], "str | Failure"]


def undo(database: Database, leaving: Leaving, bound: Bound | None) -> Document:
    """Undo the calls of tools on the line that a rollback leaves, the newest first, and make others again.

    Each is recorded before and after it, so that an interruption repeats none that is known to have ended; the one that
    was under way is called again, since it is unknown how far it came. A reverse that fails does not stop the others.

    Args:
        database: The database that the execution is in.
        leaving: The rollback.
        bound: The code, which has the tools.

    Returns:
        undone, redone, irreversible, failed and shared: lists of {tool, node, arguments, ...}.

    Raises:
        InputError: If there are calls to undo and no code is given.
    """
    report: Document = {key: [] for key in CALL_OUTCOMES}
    report["shared"] = [_words(call) for call in leaving.shared]
    if not leaving.undo and not leaving.again:
        return report
    if bound is None:
        raise InputError("tools are to be undone, and the workflow's code is not given")
    tools = bound.workflow.tools
    undo = [call for call in leaving.undo if call["tool"] in tools and tools[call["tool"]].reverse is not None]
    report["irreversible"] = [_words(call) for call in leaving.undo if call not in undo]
    if not undo and not leaving.again:
        return report
    with _calling(database, bound) as calling:
        for call in undo:
            turn(database, leaving.execution, call, "done")
            answer = calling(ToolCall(call["tool"], "reverse", call["arguments"], call["result"]))
            if isinstance(answer, Failure):
                report["failed"].append({**_words(call), "error": str(answer)})
                continue
            turn(database, leaving.execution, call, "undone")
            again = {"again": True} if call["undone_at"] is not None else {}
            report["undone"].append({**_words(call), **again})
        for call in leaving.again:
            turn(database, leaving.execution, call, "undone")
            answer = calling(ToolCall(call["tool"], "forward", call["arguments"]))
            if isinstance(answer, Failure):
                report["failed"].append({**_words(call), "error": str(answer)})
                continue
            turn(database, leaving.execution, call, "done", answer)
            report["redone"].append(_words(call))
    return report


def _words(call: Mapping[str, Any]) -> Document:
    return {"tool": call["tool"], "node": call["node"], "arguments": readable(call["arguments"].encode())}


@contextmanager
def _calling(database: Database, bound: Bound) -> Iterator[Call]:
    """Where tools are called: in a node process, where nodes run in such."""
    if bound.pool != "process":
        caller = Caller()
        try:
            yield lambda call: call_tool(bound.workflow.tools, call, caller)
        finally:
            caller.close()
        return
    runner = identity()  # so that a node process that outlives us is found by the cleanup
    register(database, runner)
    home = workspaces_of(database)
    mine = Workspaces(home.files, home.root / "undoing" / new_id())
    code = in_processes(bound, mine, runner["id"], 1)
    assert isinstance(code, InProcesses), "nodes run in processes"
    try:
        yield code.call_tool
    finally:
        code.close()
        remove_tree(mine.root)
        end_runner(database, runner["id"])


def call_names(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return tools by name with how often they were called, for people."""
    counts: dict[str, int] = {}
    for call in calls:
        counts[call["tool"]] = counts.get(call["tool"], 0) + 1
    return ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())
