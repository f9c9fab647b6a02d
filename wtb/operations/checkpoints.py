"""The checkpoints of a database as a store: the type of `Bench.checkpoints`."""

from __future__ import annotations

from collections.abc import Iterable

from wtb.core.errors import ConflictError
from wtb.core.tree.checkpoint_store import check_parent
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId
from wtb.core.tree.history import ExecutionHistory
from wtb.core.values import Value
from wtb.execution import rows
from wtb.execution.state import SweepIds
from wtb.store.database import Database
from wtb.store.housekeeping.superseded import remove_line
from wtb.store.read import details
from wtb.store.read.details import find_one, read_history
from wtb.store.runs.batch import Batch
from wtb.store.runs.flush import flush

LEASE_S = 60.0  # that a save renews the lease for


class DatabaseCheckpoints:
    """The checkpoints of a database as a `wtb.history.CheckpointStore`.

    Executions are those of sweeps and of `start`. Ids may be shortened to a beginning that no other has.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(
        self, execution: str, checkpoint: Checkpoint, values: Iterable[Value] = (), *, token: int = 0
    ) -> CheckpointId:
        """Write a checkpoint in one flush, as a runner does, and move the head of its execution to it.

        Args:
            execution: The id of an execution that is claimed.
            checkpoint: The checkpoint, below another one of the execution.
            values: The values that its state names and that the database may not have.
            token: The fencing token of the claim.

        Returns:
            The checkpoint's id.

        Raises:
            ConflictError: If the parent is not in the history of the execution, or if the claim is lost.
            NotFound: If there is no such execution.
        """
        row = find_one(self._database, execution)
        history = read_history(self._database, row)
        check_parent(row.id, checkpoint, {earlier.id for earlier in (*history, *history.inside, *history.left)})
        ids = SweepIds(row.session_id, row.sweep_id, row.owner_id or "")
        batch = Batch()
        batch.add(
            # The fencing token makes the write fail if another process has claimed the execution meanwhile.
            row.id,
            token,
            values=values,
            checkpoints=[rows.checkpoint(ids, row.id, checkpoint, ())],
            change={"head_id": checkpoint.id},
        )
        if flush(self._database, batch, LEASE_S):
            raise ConflictError(f"execution {row.id} was claimed by another one meanwhile; nothing was saved")
        return checkpoint.id

    def load(self, id: str) -> Checkpoint:
        """Return a checkpoint by its id. Raises NotFound."""
        checkpoint, _ = details.find_checkpoint(self._database, id)
        return checkpoint

    def history(self, execution: str) -> ExecutionHistory:
        """Return the history of an execution: its line, what is inside its nodes, and what rollbacks left.

        Raises:
            NotFound: If there is no such execution.
        """
        return read_history(self._database, find_one(self._database, execution))

    def delete(self, id: str) -> tuple[CheckpointId, ...]:
        """Delete a line that nothing else reaches, with the node runs that started from it.

        What was spent stays known of the sweep, and an event records it. A rollback that left the line cannot be undone
        any more.

        Args:
            id: The last checkpoint of the line.

        Returns:
            The deleted checkpoints, the last of the line first; those inside nodes come with their parents.

        Raises:
            ConflictError: If it is the head of an execution, if a checkpoint follows it, if it is pinned, or if its
                sweep is running, pinned, a baseline or part of a pool.
            NotFound: If there is none.
        """
        checkpoint, sweep_id = details.find_checkpoint(self._database, id)
        return remove_line(self._database, sweep_id, checkpoint.id)
