"""Pins: what stays, whatever a garbage collection removes."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from wtb.core.arguments.checking import checked
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.control.naming import check_name
from wtb.store.database import Database
from wtb.store.housekeeping import retention
from wtb.store.read import details, references


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

    A checkpoint is kept with the line that leads to it; of an execution it is the one at its head.

    Args:
        context: Where it is.
        ref: A sweep, a checkpoint or an execution: its id, the beginning of it, or a sweep's name.
        name: A name for the checkpoint.

    Returns:
        What is pinned.

    Raises:
        InputError: If there is nothing of that name, or a name is given for a sweep or is none.
        ConflictError: If it is being deleted.
    """
    if name is not None:
        check_name(name)
    target = _find(context.database, ref)
    if target.kind == "sweep":
        if name is not None:
            raise InputError(f"{ref!r} is a sweep, which has its name; a name is for checkpoints")
        retention.pin_sweep(context.database, target.id, True)
        return target
    retention.pin_checkpoint(context.database, target.id, target.sweep, True, name)
    return replace(target, name=name)


@checked
@audited
def unpin(context: Context, ref: str) -> Pin:
    """Let a garbage collection remove a pinned sweep or checkpoint again, once its policy allows that.

    Args:
        context: Where it is.
        ref: As `pin` takes it.

    Returns:
        What is pinned no more.

    Raises:
        InputError: If there is nothing of that name.
        ConflictError: If it is being deleted.
    """
    target = _find(context.database, ref)
    if target.kind == "sweep":
        retention.pin_sweep(context.database, target.id, False)
    else:
        retention.pin_checkpoint(context.database, target.id, target.sweep, False)
    return target


def _find(database: Database, ref: str) -> Pin:
    """Find a sweep, or a checkpoint by its own id or by its execution's. Raises InputError."""
    try:
        target = references.find(database, ref)
    except InputError as nothing:
        try:
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
