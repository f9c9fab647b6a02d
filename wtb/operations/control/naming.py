"""Names of checkpoints, given by hand, and pins of sweeps and checkpoints, which every garbage collection keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from wtb.core.arguments import Reason, checked
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.tree.history import ExecutionHistory
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.store.control import edits
from wtb.store.database import Database
from wtb.store.housekeeping import retention
from wtb.store.read import details
from wtb.store.read.details import find_one, read_history

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
        raise InputError(f"execution {row.id} has no checkpoint yet; its first one is written when it starts")
    _check_unused(history, name, checkpoint.id)
    edits.name_checkpoint(context.database, row, checkpoint.id, name, note=note, by=context.by)
    return CheckpointName(row.id, checkpoint.id, name, note, checkpoint.name)


def _at_head(history: ExecutionHistory) -> Checkpoint | None:
    """Return the checkpoint at the head; after a rollback its target, which remains if the rollback is undone."""
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
    # Commands accept a node or a name at the same place, and the node would win.
    if name in nodes:
        raise InputError(f"name {name!r} is a node of execution {history.execution}; expected another name")
    for checkpoint in (*history.left, *history.inside, *history):
        if checkpoint.id != id and name in (checkpoint.name, checkpoint.id):
            raise InputError(
                f"name {name!r} is in use: checkpoint {checkpoint.id} of execution {history.execution} has it; "
                "expected another name"
            )


@frozen
class Pin:
    """A sweep or checkpoint whose pin was set or removed.

    Attributes:
        kind: Which of them it is.
        id: Its id.
        name: The sweep's name, or the one that the checkpoint was given now.
        sweep: The id of the sweep that it is or belongs to.
    """

    kind: Literal["sweep", "checkpoint"]
    id: str
    name: str | None
    sweep: str


@checked
@audited
def pin(context: Context, ref: str, name: str | None = None) -> Pin:
    """Keep a sweep or checkpoint, whatever a garbage collection removes.

    A checkpoint is kept with the line that leads to it. For an execution, its head is pinned.

    Args:
        context: Where it is.
        ref: A sweep, a checkpoint or an execution: its id, the beginning of it, or a sweep's name.
        name: A name for the checkpoint.

    Returns:
        The pinned sweep or checkpoint.

    Raises:
        InputError: If there is nothing of that name, or a name is given for a sweep or is none.
        ConflictError: If it is being deleted.
    """
    if name is not None:
        check_name(name)
    target = _find(context.database, ref)
    if name is not None and target.kind == "sweep":
        raise InputError(f"{ref!r} is a sweep, which has its name; a name is for checkpoints")
    _set_pinned(context.database, target, True, name)
    return target if target.kind == "sweep" else replace(target, name=name)


@checked
@audited
def unpin(context: Context, ref: str) -> Pin:
    """Let a garbage collection remove a pinned sweep or checkpoint again, once its policy allows that.

    Args:
        context: Where it is.
        ref: As `pin` takes it.

    Returns:
        The sweep or checkpoint that is no longer pinned.

    Raises:
        InputError: If there is nothing of that name.
        ConflictError: If it is being deleted.
    """
    target = _find(context.database, ref)
    _set_pinned(context.database, target, False)
    return target


def _set_pinned(database: Database, target: Pin, pinned: bool, name: str | None = None) -> None:
    if target.kind == "sweep":
        retention.pin_sweep(database, target.id, pinned)
    else:
        retention.pin_checkpoint(database, target.id, target.sweep, pinned, name)


def _find(database: Database, ref: str) -> Pin:
    """Find a sweep, or a checkpoint by its own id or by its execution's. Raises InputError."""
    try:
        target = details.find(database, ref)
    except InputError as nothing:
        try:
            # The reference may be a checkpoint's own id, which is looked up only if nothing else has it.
            checkpoint, sweep_id = details.find_checkpoint(database, ref)
        except InputError as no_checkpoint:
            several = [text for error in (nothing, no_checkpoint) for text in error.problems if "several" in text]
            raise InputError(*(several or nothing.problems)) from None
        return Pin("checkpoint", checkpoint.id, None, sweep_id)
    if target.kind == "sweep":
        return Pin("sweep", target.id, target.row.name, target.id)
    row = target.row
    if row.head_id is None:
        raise InputError(f"execution {row.id} has no checkpoint yet")
    return Pin("checkpoint", row.head_id, None, row.sweep_id)
