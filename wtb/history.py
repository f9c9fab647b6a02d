"""The history of executions, as users import it: checkpoints, visits of nodes, and where a rollback can lead."""

from __future__ import annotations

from wtb.core.tree.checkpoint_store import CheckpointStore, InMemoryCheckpoints
from wtb.core.tree.checkpoints import Checkpoint, CheckpointId, Position, Writer
from wtb.core.tree.history import ExecutionHistory, RollbackCheck
from wtb.core.tree.recorded_runs import NodeBoundary
from wtb.core.values import Value

__all__ = [
    "Checkpoint",
    "CheckpointId",
    "CheckpointStore",
    "ExecutionHistory",
    "InMemoryCheckpoints",
    "NodeBoundary",
    "Position",
    "RollbackCheck",
    "Value",
    "Writer",
]
