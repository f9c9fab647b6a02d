"""The history of an execution, and single checkpoints of it."""

from __future__ import annotations

from wtb.core.arguments.checking import checked
from wtb.core.documents.lineage import CheckpointDetails, HistoryDocument
from wtb.core.tree.history import ExecutionHistory
from wtb.display.views.checkpoints import checkpoint_details
from wtb.display.views.executions import history_document
from wtb.operations.context import Context
from wtb.store.read import details
from wtb.store.read.histories import read_history
from wtb.store.read.references import find_one


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
