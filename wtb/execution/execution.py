"""An execution in the memory of its runner: a head on the tree of checkpoints, with its case and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from wtb.authoring.context.attempt_record import CaseView
from wtb.core.failures import Failure
from wtb.core.frozen import frozen
from wtb.core.questions import Dialogue
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.values import Value, Values
from wtb.core.work_record import TaskRecord
from wtb.execution.engine.protocol import Result
from wtb.store.tables.executions import AskedRow
from wtb.store.tables.node_runs import NodeRunRow

NodeRunKey = tuple[str, str]  # the key of a task, and a variant


@frozen
class Case:
    """A case as it is stored: its input encoded by key."""

    number: int
    id: str
    input: Values
    expected: bytes | None
    tags: tuple[str, ...]
    workspace: str | None

    @cached_property
    def encoded(self) -> dict[str, bytes]:
        return {name: value.data for name, value in self.input.items()}

    def view(self) -> CaseView:
        """The case for one attempt, which decodes a copy of its own."""
        return CaseView(self.id, self.tags, self.encoded)


@frozen
class Loaded:
    """The state that a claimed execution found at its head; `NOTHING` if its own runner made the head.

    Attributes:
        earlier: Node runs that started from the head before this claim, by (task, variant).
        values: The values that they wrote, by digest.
        saved: Values saved by the visit that continues, if the head was taken inside a node.
        wrote: Nodes of the last step, if a person made the head.
        dialogue: Questions and answers at the head.
    """

    earlier: Mapping[NodeRunKey, NodeRunRow] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    saved: Values = field(default_factory=dict)
    wrote: tuple[str, ...] = ()
    dialogue: Dialogue = field(default_factory=Dialogue)


NOTHING = Loaded()


@frozen
class NodeRun:
    """A node run that has ended: accepted or skipped, so that the execution continues, or failed. `task` is its key."""

    id: str
    task: str
    node: str
    variant: str
    result: Result
    skipped: bool = False

    @property
    def failure(self) -> Failure | None:
        return None if self.skipped else self.result.failure


@dataclass
class Execution:
    """A claimed execution: a head on the tree of checkpoints, with the cells that it stands for.

    Attributes:
        combinations: Combination numbers of its cells; empty for a fork by a person, which has `choices`.
        state: The values at the head, by key.
        path: Nodes from the root to the head.
        loaded: The state found at the head, until the first step of this claim.
        kills: How often its node process died during one of its node runs.
        queue: The workers' queue from which it was claimed.
        edited: Whether a person changed its state.
        prior_request: A person's request from before this claim.
        ahead: Functions that end the node runs of its next step that were begun together with others.
        suspect: Whether it was lost with its worker, and none of its nodes has ended since.
        passed: The checkpoint at which breakpoints no longer apply.
        status: Its final status, once it has one.
        line: Ids of this execution and of those that continued in its place.
        record: The record of the task that it is part of, shared with its forks.
    """

    id: str
    token: int
    case: Case
    repeat: int
    combinations: Sequence[int]
    head: Checkpoint | None = None
    state: Values = field(default_factory=dict)
    path: tuple[str, ...] = ()
    loaded: Loaded = NOTHING
    kills: int = 0
    queue: str | None = None
    choices: Mapping[str, str] | None = None
    edited: bool = False
    prior_request: AskedRow | None = None
    suspect: bool = False
    passed: str | None = None
    ahead: dict[NodeRunKey, Callable[[], NodeRun]] = field(default_factory=dict)
    status: str = "running"
    line: list[str] = field(default_factory=list)
    record: TaskRecord = field(default_factory=TaskRecord)

    def child(self, id: str, combinations: Sequence[int]) -> Execution:
        """Make a fork of this execution with some of its cells: the same head, the same values."""
        return replace(
            self,
            id=id,
            token=1,
            combinations=combinations,
            kills=0,
            prior_request=None,
            status="running",
            line=[],
            ahead={},
        )

    @property
    def at(self) -> Checkpoint:
        assert self.head is not None, "an execution has a head once it has begun"
        return self.head
