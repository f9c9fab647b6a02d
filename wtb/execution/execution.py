"""An execution in the memory of its runner: a head on the tree of checkpoints, with its case and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from wtb.authoring.context.attempt_record import CaseView
from wtb.core.classes.frozen import frozen
from wtb.core.failures import Failure
from wtb.core.questions import Dialogue
from wtb.core.telemetry.task_record import TaskRecord
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.values import Value, Values
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
    """What an execution that was claimed found at its head. Where its own runner made the head, that is `NOTHING`.

    earlier: node runs that started from the head before this claim, by (task, variant). values: those that they wrote,
    by digest. saved: what the visit that goes on has saved, if the head was taken inside a node. wrote: the nodes of
    the last step, if the head is one that a person made. dialogue: questions and answers at the head.
    """

    earlier: Mapping[NodeRunKey, NodeRunRow] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)
    saved: Values = field(default_factory=dict)
    wrote: tuple[str, ...] = ()
    dialogue: Dialogue = field(default_factory=Dialogue)


NOTHING = Loaded()


@frozen
class NodeRun:
    """A node run that has ended: accepted or skipped, so that the execution goes on, or failed. task: its key."""

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

    combinations: the cells, by number of their combination; empty for one that a person forked, which has `choices`.
    state: the head's values by key.
    path: nodes from the root to the head.
    loaded: what was found at the head, until the first step of this claim.
    kills: how often its node process died with it.
    queue: the workers' queue from which it was claimed.
    edited: whether a person changed its state.
    asked: what a person requested of it before this claim.
    ahead: node runs of its next step that were begun together with others, and how to end each.
    suspect: whether it was lost with its worker, and no node of it has ended since.
    passed: the checkpoint at which breakpoints no longer apply.
    status: how it ended, once it has.
    line: ids of this execution and of those that went on in its place.
    record: of the task that it is a part of; what forks off it is, too.
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
    asked: AskedRow | None = None
    suspect: bool = False
    passed: str | None = None
    ahead: dict[NodeRunKey, Callable[[], NodeRun]] = field(default_factory=dict)
    status: str = "running"
    line: list[str] = field(default_factory=list)
    record: TaskRecord = field(default_factory=TaskRecord)

    def child(self, id: str, combinations: Sequence[int]) -> Execution:
        """A fork of this execution with some of its cells: the same head, the same values."""
        return replace(
            self,
            id=id,
            token=1,
            combinations=combinations,
            kills=0,
            asked=None,
            status="running",
            line=[],
            ahead={},
        )

    @property
    def at(self) -> Checkpoint:
        assert self.head is not None, "an execution has a head once it has begun"
        return self.head
