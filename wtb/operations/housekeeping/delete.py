"""Deleting a sweep with all that belongs to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from wtb.core.arguments.checking import checked
from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.store import process_identity
from wtb.store.housekeeping import deletion
from wtb.store.read import details, queries
from wtb.store.read.references import SweepTarget
from wtb.store.runs import leases

AT_ONCE_S = 2.0  # so much time is spent on rows before `delete` answers


@frozen
class Deleted:
    """What `delete` removed, or would remove.

    Attributes:
        sweep: The id of the sweep.
        name: Its name.
        status: Its status before.
        counts: How many of each kind belonged to it: cells, executions, checkpoints, node_runs, scores, events.
        rows_left: Whether rows of it are still to go, which the scheduler or a garbage collection removes.
    """

    sweep: str
    name: str
    status: str
    counts: Mapping[str, int]
    rows_left: bool = False


@checked
def preview_delete(context: Context, ref: str) -> Deleted:
    """Return what `delete` would remove, for who has to confirm it.

    Args:
        context: Where it is.
        ref: Its id, the beginning of it, or its name.

    Returns:
        The sweep, and how many of each kind belong to it.

    Raises:
        InputError: If there is no such sweep.
        ConflictError: If a process may be running it.
    """
    target = SweepTarget(queries.find_sweep(context.database, ref))
    for owner in leases.owners(context.database, target.id):
        if process_identity.may_live(owner, expired=owner.expired):
            where = f"process {owner.pid} on {owner.host}"
            raise ConflictError(f"{target}: {where} is running it; stop that process first")
    return Deleted(target.id, target.row.name, target.row.status, details.belongings(context.database, target.id))


@checked
@audited
def delete(context: Context, ref: str) -> Deleted:
    """Delete a sweep with its cells, executions, checkpoints, scores and events, for good.

    It is gone at once. Where it has so many rows that removing them takes more than two seconds, the rest goes after
    that: with the rounds of a scheduler, or with the next garbage collection.

    Args:
        context: Where it is.
        ref: Its id, the beginning of it, or its name.

    Returns:
        What was removed.

    Raises:
        InputError: If there is no such sweep.
        ConflictError: If a process may be running it, or if it is a baseline.
    """
    deleted = preview_delete(context, ref)
    end = time.monotonic() + AT_ONCE_S
    all_gone = deletion.delete_sweep(context.database, deleted.sweep, lambda: time.monotonic() > end)
    return replace(deleted, rows_left=not all_gone)
