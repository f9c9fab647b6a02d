"""Rows of executions, their checkpoints, node runs and calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from wtb.core.failures import StoredFailure
from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.store.rows.record import Record
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.node_runs import NodeRunRow


class OpenHead(ExecutionRow):
    """An execution that has begun and that nobody works on.

    Attributes:
        state: Key -> digest of its value, at its head.
    """

    state: Mapping[str, str]


class OfExecution(Protocol):
    """What says which execution it is, and which cells it stands for."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def sweep_id(self) -> str: ...
    @property
    def case_number(self) -> int: ...
    @property
    def repeat(self) -> int: ...
    @property
    def combinations(self) -> Sequence[int]: ...


class CellsOfExecution(NamedTuple):
    """An execution that is about to be inserted, or a part of its cells."""

    id: str
    session_id: str
    sweep_id: str
    case_number: int
    repeat: int
    combinations: Sequence[int]


class LostExecution(Record):
    """An execution that was taken back from a runner whose lease ran out.

    Attributes:
        owner_id: The runner.
        losses: How often its lease ran out in a node, this time included.
        task_id: The task in which it ran.
    """

    id: str
    session_id: str
    sweep_id: str
    owner_id: str
    losses: int
    case_number: int
    repeat: int
    combinations: list[int]
    task_id: str | None


class Mark(Record):
    """A checkpoint without its state, as trees and rollbacks are made from."""

    id: str
    parent_id: str | None
    execution_id: str
    position: StoredPosition
    writers: list[list[str]]
    trigger: Trigger
    name: str | None
    inside: StoredInside | None
    created_at: float


class AskingNodeRun(NodeRunRow):
    """A node run with how its last attempt ended."""

    failure: StoredFailure | None


class NodeRunUnderWay(NodeRunRow):
    """A node run that has not ended. for_s: seconds since it began."""

    for_s: float


class StalledRow(Record):
    """An execution in which a running node has reported nothing for too long; since: seconds since the epoch."""

    id: str
    case: str
    since: float
