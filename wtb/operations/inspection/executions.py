"""Executions and their checkpoints: their history, and where two of them part."""

from __future__ import annotations

from wtb.core.arguments import Count, checked
from wtb.core.documents.lineage import CheckpointDetails, DiffDocument, HistoryDocument, TreeDocument
from wtb.core.errors import InputError
from wtb.core.tree.history import ExecutionHistory
from wtb.display.views.executions import history_document, trace_of
from wtb.display.views.lineage import MAX_SEGMENTS, checkpoint_details, diff_document, tree_document
from wtb.operations.context import Context
from wtb.store.read import details
from wtb.store.read.details import find, find_one, read_history
from wtb.store.read.queries import find_sweep


@checked
def tree(context: Context, ref: str, *, case: str | None = None, limit: Count = MAX_SEGMENTS) -> TreeDocument:
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


@checked
def history(context: Context, ref: str, *, state: bool = False) -> HistoryDocument:
    """Return the checkpoints that led to where an execution is.

    Args:
        context: Where.
        ref: The execution's id, or the beginning of it.
        state: Also return the state at each checkpoint, and the input and output of each visit of a node.

    Returns:
        The checkpoints, who wrote each and why it went on so, its nodes' boundaries, and lines that rollbacks left.

    Raises:
        InputError: If there is no such execution.
    """
    return history_document(context.database, find_one(context.database, ref), states=state)


def read(context: Context, ref: str) -> ExecutionHistory:
    """Return the history of an execution as a value, of which `history` is the JSON.

    Args:
        context: Where.
        ref: The execution's id, or the beginning of it.

    Returns:
        The history as it is now.

    Raises:
        InputError: If there is no such execution.
    """
    return read_history(context.database, find_one(context.database, ref))


@checked
def show_checkpoint(context: Context, ref: str) -> CheckpointDetails:
    """Return a checkpoint with its state, its files, who wrote it and what comes next.

    Args:
        context: Where.
        ref: The checkpoint's id, or the beginning of it.

    Returns:
        The document, as `wtb show CHECKPOINT --format json` prints it.

    Raises:
        InputError: If there is no such checkpoint.
        StoreError: If files are missing or damaged.
    """
    checkpoint, sweep_id = details.find_checkpoint(context.database, ref)
    return checkpoint_details(context.database, checkpoint, sweep_id, context.workspaces.files)
