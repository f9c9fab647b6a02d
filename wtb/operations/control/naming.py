"""Name checkpoints by hand, with a note, so that people find them again."""

from __future__ import annotations

from wtb.core.arguments.checking import checked
from wtb.core.arguments.kinds import Reason
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.tree.history import ExecutionHistory
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.store.control import edits
from wtb.store.read.histories import read_history
from wtb.store.read.references import find_one

LONGEST = 200  # characters of a name


@frozen
class CheckpointName:
    """A checkpoint that was named.

    Attributes:
        execution: The execution whose checkpoint it is.
        checkpoint: Its id.
        name: Its name, which `rollback`, `fork`, `files` and `show` of the execution take.
        note: The note, or None.
        previous: The name that it had before, or None.
    """

    execution: str
    checkpoint: str
    name: str
    note: str | None
    previous: str | None


@checked
@audited
def name_checkpoint(
    context: Context, ref: str, name: str, *, note: Reason | None = None, at: str | None = None
) -> CheckpointName:
    """Name a checkpoint of an execution, so that rollbacks, forks and people find it by this name.

    Args:
        context: Where, and who does it.
        ref: The execution's id, or the beginning of it.
        name: The name: 1 to 200 printable characters. The name of a node is rejected, and so is one that another
            checkpoint of the execution has.
        note: A note for people, kept with it.
        at: A checkpoint's id or name, or a node for its last exit; by default the checkpoint at the head, or below a
            rollback its target.

    Returns:
        What was named.

    Raises:
        InputError: If there is no such execution or checkpoint, or if the name is none or in use.
        ConflictError: If the checkpoint was removed meanwhile.
    """
    check_name(name)
    row = find_one(context.database, ref)
    history = read_history(context.database, row)
    checkpoint = _at_head(history) if at is None else history.resolve(at)
    if checkpoint is None:
        raise InputError(f"execution {row.id} has no checkpoint yet; it gets its first one when it begins")
    _check_unused(history, name, checkpoint.id)
    edits.name_checkpoint(context.database, row, checkpoint.id, name, note=note, by=context.by)
    return CheckpointName(row.id, checkpoint.id, name, note, checkpoint.name)


def _at_head(history: ExecutionHistory) -> Checkpoint | None:
    """Return the checkpoint at the head; below a rollback its target, which is there after the rollback is undone."""
    head = history.latest
    if head is None or head.trigger != "manual" or head.parent is None:
        return head
    parent = history.get(head.parent)
    is_same = parent is not None and (parent.state, parent.workspace) == (head.state, head.workspace)
    return parent if is_same else head


def check_name(name: str) -> None:
    """Raise InputError if a text cannot be the name of a checkpoint."""
    if not (0 < len(name.strip()) <= LONGEST and len(name) <= LONGEST and name.isprintable()):
        raise InputError(f"name {name!r}: expected 1 to {LONGEST} printable characters")


def _check_unused(history: ExecutionHistory, name: str, id: str) -> None:
    nodes = {boundary.node for boundary in history.boundaries}
    if name in nodes:
        raise InputError(f"name {name!r} is a node of execution {history.execution}; expected another name")
    for checkpoint in (*history.left, *history.inside, *history):
        if checkpoint.id != id and name in (checkpoint.name, checkpoint.id):
            raise InputError(
                f"name {name!r} is in use: checkpoint {checkpoint.id} of execution {history.execution} has it; "
                "expected another name"
            )
