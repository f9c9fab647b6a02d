"""The history of executions, as users import it: checkpoints, visits of nodes, and where a rollback can lead."""

from __future__ import annotations

from wtb.core.tree.checkpoints import Checkpoint, CheckpointId
from wtb.core.tree.history import ExecutionHistory, NodeBoundary, RollbackCheck

__all__ = ["Checkpoint", "CheckpointId", "ExecutionHistory", "NodeBoundary", "RollbackCheck"]
