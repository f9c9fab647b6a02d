"""Executions and their checkpoints: what led where, and where two of them part."""

from __future__ import annotations

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Count
from wtb.core.documents.lineage import DiffDocument, TreeDocument
from wtb.core.errors import InputError
from wtb.display.views.execution_diff import diff_document
from wtb.display.views.executions import trace_of
from wtb.display.views.lineage import MOST, tree_document
from wtb.operations.context import Context
from wtb.store.read.queries import find_sweep
from wtb.store.read.references import find


@checked
def tree(context: Context, ref: str, *, case: str | None = None, limit: Count = MOST) -> TreeDocument:
    """Return how executions share, fork and were rolled back.

    Args:
        context: Where.
        ref: A sweep, or an execution to see what is around it: its id, the beginning of it, or a sweep's name.
        case: Of a sweep: only executions of the case with this id.
        limit: Of a sweep: at most this many lines.

    Returns:
        The document, as `wtb tree --format json` prints it.

    Raises:
        InputError: If there is no such sweep, execution or case.
    """
    target = find(context.database, ref)
    if target.kind == "sweep":
        return tree_document(context.database, target.row, case=case, limit=limit)
    if case is not None:
        raise InputError(f"{ref!r} is an execution, which has one case; a case can be chosen for a sweep only")
    sweep = find_sweep(context.database, target.row.sweep_id)
    return tree_document(context.database, sweep, execution=target.row, limit=limit)


@checked
def diff(context: Context, a: str, b: str) -> DiffDocument:
    """Compare two executions or checkpoints: where they part, their states, paths, files and totals.

    Args:
        context: Where.
        a: The id of one, or the beginning of it.
        b: That of the other.

    Returns:
        The document, as `wtb diff --format json` prints it.

    Raises:
        InputError: If there is no such execution or checkpoint.
        StoreError: If a snapshot of files is missing or damaged.
    """
    sides = trace_of(context.database, a), trace_of(context.database, b)
    with_files = any(side.head is not None and side.head.workspace for side in sides)
    return diff_document(context.database, *sides, context.workspaces.files if with_files else None)
