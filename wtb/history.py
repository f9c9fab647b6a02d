"""What happened, as a value: checkpoints in a line, and node boundaries computed from them. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NewType

CheckpointId = NewType("CheckpointId", str)
Trigger = Literal["step", "time", "manual", "durable", "error"]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a head stands: what comes next, who waits at which join, and how often each node has run."""

    step: int
    next: tuple[str, ...]
    arrived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Totals:
    """What one cell would have spent up to here as if alone: accepted attempts only.

    elapsed_s: seconds, for steps in parallel the longest. usd: US dollars.
    """

    elapsed_s: float = 0.0
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    node_runs: int = 0


@dataclass(frozen=True, slots=True)
class Writer:
    """A node that wrote a checkpoint, under which variant, by which node run."""

    node: str
    variant: str
    node_run: str


@dataclass(frozen=True, slots=True)
class Inside:
    """What a checkpoint that was taken inside a node keeps of its visit: key -> SHA-256 of what it saved."""

    node_run: str
    node: str
    variant: str
    saved: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An immutable snapshot after a step, inside a node, or of what a person changed: the latter two have no writers.

    `state` maps each key to the SHA-256 of its stored value.
    """

    id: CheckpointId
    parent: CheckpointId | None
    position: Position
    state: Mapping[str, str]
    writers: tuple[Writer, ...] = ()
    workspace: str | None = None
    totals: Totals = Totals()
    trigger: Trigger = "step"
    name: str | None = None
    created_at: float = 0.0
    inside: Inside | None = None

    @property
    def step(self) -> int:
        return self.position.step


@dataclass(frozen=True, slots=True)
class NodeBoundary:
    """One visit of a node: the checkpoint it started from and, once it has run, the one it wrote."""

    node: str
    visit: int
    entry: CheckpointId
    exit: CheckpointId | None


@dataclass(frozen=True)
class ExecutionHistory:
    """The line of checkpoints from the root to a head, oldest first.

    Raises ValueError where they do not form a line by parent.
    """

    checkpoints: Sequence[Checkpoint]

    def __post_init__(self) -> None:
        for parent, child in zip(self.checkpoints, self.checkpoints[1:], strict=False):
            if child.parent != parent.id:
                raise ValueError(f"checkpoint {child.id} follows {parent.id} but its parent is {child.parent}")

    @property
    def latest(self) -> Checkpoint | None:
        return self.checkpoints[-1] if self.checkpoints else None

    @property
    def path(self) -> tuple[str, ...]:
        """Nodes in the order in which they ran; those of one step in the order of declaration."""
        return tuple(writer.node for checkpoint in self.checkpoints for writer in checkpoint.writers)

    @property
    def completed_nodes(self) -> frozenset[str]:
        return frozenset(self.path)

    def boundaries(self) -> list[NodeBoundary]:
        """One boundary a visit, in the order of entry: entry among the next nodes, exit among the writers.

        A checkpoint taken inside a node has no writers, so the visit that it interrupts stays open.
        """
        found: list[NodeBoundary] = []
        open_at: dict[str, int] = {}
        visits: dict[str, int] = {}
        for checkpoint in self.checkpoints:
            for writer in checkpoint.writers:
                if writer.node in open_at:
                    number = open_at.pop(writer.node)
                    found[number] = replace(found[number], exit=checkpoint.id)
            for node in checkpoint.position.next:
                if node not in open_at:
                    visits[node] = visits.get(node, -1) + 1
                    open_at[node] = len(found)
                    found.append(NodeBoundary(node, visits[node], checkpoint.id, None))
        return found

    def by_node(self, node: str) -> list[NodeBoundary]:
        return [boundary for boundary in self.boundaries() if boundary.node == node]

    def rollback_targets(self) -> dict[str, CheckpointId]:
        """Where rolling back to each node leads: the exit of its last completed visit."""
        return {b.node: b.exit for b in self.boundaries() if b.exit is not None}
