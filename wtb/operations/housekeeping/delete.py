"""Deleting a sweep with all that belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wtb.core.arguments.checking import checked
from wtb.core.errors import ConflictError
from wtb.operations.context import Context
from wtb.store import process_identity
from wtb.store.housekeeping import deletion
from wtb.store.read import details, queries
from wtb.store.read.references import SweepTarget
from wtb.store.runs import leases


@dataclass(frozen=True)
class Deleted:
    """What `delete` removed, or would remove.

    Attributes:
        target: The sweep, as it was.
        counts: How many of each kind belonged to it: cells, executions, checkpoints, node_runs, scores, events.
    """

    target: SweepTarget
    counts: Mapping[str, int]


@checked
def preview_delete(context: Context, ref: str) -> Deleted:
    """Return what `delete` would remove, for who has to confirm it. Raises as `delete` does."""
    target = SweepTarget(queries.find_sweep(context.database, ref))
    for owner in leases.owners(context.database, target.id):
        if process_identity.may_live(owner, expired=owner.expired):
            where = f"process {owner.pid} on {owner.host}"
            raise ConflictError(f"{target}: {where} is running it; stop that process first")
    return Deleted(target, details.belongings(context.database, target.id))


@checked
def delete(context: Context, ref: str) -> Deleted:
    """Delete a sweep with its cells, executions, checkpoints, scores and events, for good.

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
    deletion.delete_sweep(context.database, deleted.target.id)
    return deleted
