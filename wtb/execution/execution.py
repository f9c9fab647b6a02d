"""An execution in the memory of its runner: a head on the tree of checkpoints, with its case and its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from wtb.authoring.context.attempt_record import CaseView
from wtb.core.questions import Dialogue
from wtb.core.tree.checkpoints import Checkpoint
from wtb.core.values import Value, Values

NodeRunKey = tuple[str, str]  # the key of a task, and a variant


@dataclass(frozen=True)
class Case:
    """A case as it is stored: its input encoded by key."""

    number: int
    id: str
    input: Values
    expected: bytes | None
    tags: tuple[str, ...]
    workspace: str | None

    def view(self) -> CaseView:
        return CaseView(self.id, self.tags, {name: value.data for name, value in self.input.items()})


@dataclass
class Execution:
    """A claimed execution: a head on the tree of checkpoints, with the cells that it stands for.

    combinations: the cells, by number of their combination; empty for one that a person forked, which has `choices`.
    state: the head's values by key.
    path: nodes from the root to the head.
    earlier: node runs that started from the head before this claim, by (task, variant).
    kills: how often its node process died with it.
    queue: the workers' queue from which it was claimed.
    edited: whether a person changed its state.
    asked: what a person requested of it before this claim.
    passed: the checkpoint at which breakpoints no longer apply.
    dialogue: questions and answers at its head.
    wrote: the nodes of its last step, if its head is one that a person made.
    saved: what the visit that goes on has saved, if the head was taken inside a node.
    status, children: how it ended, once it has.
    failures: in words, and line: ids; of this execution and of those that went on in its place.
    """

    id: str
    token: int
    case: Case
    repeat: int
    combinations: Sequence[int]
    head: Checkpoint | None = None
    state: Values = field(default_factory=dict)
    path: tuple[str, ...] = ()
    earlier: Mapping[NodeRunKey, Mapping[str, Any]] = field(default_factory=dict)
    earlier_values: Mapping[str, Value] = field(default_factory=dict)
    kills: int = 0
    queue: str | None = None
    choices: Mapping[str, str] | None = None
    edited: bool = False
    asked: Mapping[str, Any] | None = None
    passed: str | None = None
    dialogue: Dialogue = field(default_factory=Dialogue)
    wrote: tuple[str, ...] = ()
    saved: Values = field(default_factory=dict)
    status: str = "running"
    children: int = 0
    failures: list[str] = field(default_factory=list)
    line: list[str] = field(default_factory=list)

    def child(self, id: str, combinations: Sequence[int]) -> Execution:
        """A fork of this execution with some of its cells: the same head, the same values."""
        return replace(
            self, id=id, token=1, combinations=combinations, kills=0, asked=None, status="running", children=0, line=[]
        )

    @property
    def at(self) -> Checkpoint:
        assert self.head is not None, "an execution has a head once it has begun"
        return self.head
