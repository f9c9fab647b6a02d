"""Checkpoints as values: their contents, and the position of an execution at one. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar

from wtb.core.frozen import frozen

CheckpointId = NewType("CheckpointId", str)
CheckpointId.__doc__ = """The id of a checkpoint: a string, as commands print it.

Example:
    >>> from wtb.history import CheckpointId
    >>> CheckpointId("01jd3c0")
    '01jd3c0'
"""
V = TypeVar("V")
Trigger = Literal["step", "time", "manual", "durable", "error"]


HIDDEN = "~"
"""What keys of the state begin with that are the engine's own."""


def is_hidden(key: str) -> bool:
    """Return whether a key of the state is the engine's own: stored like all others, and hidden from people."""
    return key.startswith(HIDDEN)


class NodeTask(NamedTuple):
    """A task of a step: a node, or one of the several tasks of a node.

    Attributes:
        key: The node's name, or `node|number` if it fans out.
        number: From 0, among the tasks of its node.
    """

    key: str
    node: str
    number: int = 0

    @classmethod
    def of(cls, node: str) -> NodeTask:
        """Return the only task of a node that does not fan out."""
        return cls(node, node)


class StoredPosition(TypedDict):
    """A `Position` as it is stored and sent."""

    step: int
    next: Sequence[str]
    arrived: Mapping[str, Sequence[str]]
    visits: Mapping[str, int]
    fan_out: NotRequired[Mapping[str, int]]
    engine: NotRequired[Any]


class StoredInside(TypedDict):
    """An `Inside` as it is stored."""

    node_run: str
    node: str
    variant: str
    saved: Mapping[str, str]
    task: NotRequired[str | None]


@frozen(slots=True)
class Position:
    """A place in a workflow: the step, the nodes that come next, and how often each node has run.

    Args:
        step: The number of steps so far; 0 for the input.
        next: The nodes that run next.
        arrived: Join -> the nodes that have arrived at it.
        visits: Node -> how often it has run.
        fan_out: Next node -> how many tasks it has, if that is not one.
        engine: Plain JSON that only the engine reads.

    Example:
        >>> from wtb.history import Position
        >>> Position(1, ("answer",), visits={"retrieve": 1}).next
        ('answer',)
    """

    step: int
    next: tuple[str, ...]
    arrived: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    visits: Mapping[str, int] = field(default_factory=dict)
    fan_out: Mapping[str, int] = field(default_factory=dict)
    engine: Any = None

    @property
    def tasks(self) -> tuple[NodeTask, ...]:
        """The tasks of the next step, in the order of `next`."""
        if not self.fan_out:
            return tuple(map(NodeTask, self.next, self.next))
        return tuple(task for node in self.next for task in self._tasks_of(node))

    def _tasks_of(self, node: str) -> list[NodeTask]:
        if node not in self.fan_out:
            return [NodeTask.of(node)]
        return [NodeTask(f"{node}|{number}", node, number) for number in range(self.fan_out[node])]

    def document(self) -> StoredPosition:
        """Return it as plain JSON, as it is stored and sent.

        Returns:
            The attributes by name; `fan_out` and `engine` only if they are set.
        """
        position = StoredPosition(step=self.step, next=self.next, arrived=self.arrived, visits=self.visits)
        if self.fan_out:
            position["fan_out"] = self.fan_out
        if self.engine is not None:
            position["engine"] = self.engine
        return position

    @classmethod
    def read(cls, document: StoredPosition) -> Position:
        """Read a position from plain JSON.

        Args:
            document: The mapping that the method `document` returned.

        Returns:
            The position.
        """
        return cls(
            document["step"],
            tuple(document["next"]),
            {join: tuple(sources) for join, sources in document["arrived"].items()},
            document["visits"],
            document.get("fan_out", {}),
            document.get("engine"),
        )


def in_order(state: Mapping[str, V], order: Mapping[str, int]) -> dict[str, V]:
    """Return a state with its keys in the order of declaration, and then by name.

    Args:
        state: Values by key; a database may return the keys in any order.
        order: The place of each key that the workflow declares.
    """
    return {key: state[key] for key in sorted(state, key=lambda key: (order.get(key, len(order)), key))}


def visible_state(state: Mapping[str, V]) -> dict[str, V]:
    """Return a state without the engine's own keys."""
    return {key: value for key, value in state.items() if not is_hidden(key)}


@frozen(slots=True)
class Totals:
    """The amounts that one cell alone would have spent up to here: accepted attempts only.

    Attributes:
        elapsed_s: Seconds; of parallel steps, the longest.
        usd: US dollars.
    """

    elapsed_s: float = 0.0
    usd: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    node_runs: int = 0


@frozen(slots=True)
class Writer:
    """A node that wrote a checkpoint; one for each of its tasks.

    Args:
        node: The node.
        variant: The variant that ran.
        node_run: The id of its node run.

    Example:
        >>> from wtb.history import Writer
        >>> Writer("retrieve", "default", "1ng8x2gqyq9d").node
        'retrieve'
    """

    node: str
    variant: str
    node_run: str


@frozen(slots=True)
class Inside:
    """The saved data of a visit, in a checkpoint that was taken inside a node.

    Attributes:
        saved: SHA-256 of the saved values by key.
        task: The key of its task, if the node fans out.
    """

    node_run: str
    node: str
    variant: str
    saved: Mapping[str, str]
    task: str | None = None

    def is_of(self, task: NodeTask, variant: str) -> bool:
        """Return whether the visit is that of a task, under a variant."""
        return (self.task or self.node, self.variant) == (task.key, variant)


@frozen(slots=True)
class Checkpoint:
    """An immutable snapshot after a step, inside a node, or of a person's change; the latter two have no writers.

    Attributes:
        id: Its id, which `rollback` and `fork` take.
        parent: The checkpoint before it, or None for the input.
        position: Its step, the nodes that come next, and how often each has run.
        state: Key of the state -> SHA-256 of the stored value.
        writers: The nodes that wrote it, with their variants and node runs.
        workspace: SHA-256 of the snapshot of files, or None.
        totals: Time, cost and node runs of the line up to it.
        trigger: Its cause: step, time, manual, durable or error.
        name: Its name, if it has one.
        created_at: Seconds since the epoch.
        inside: The visit that it was taken in, if a node was running.

    Example:
        >>> from wtb import Workflow, start
        >>> wf = Workflow("counting")
        >>> wf.entry(wf.node(lambda state: {"n": state["n"] + 1}, name="count"))
        >>> history = start(wf, {"n": 1}, db="sqlite:///:memory:").wait().history()
        >>> [(checkpoint.step, checkpoint.is_terminal, sorted(checkpoint.state)) for checkpoint in history]
        [(0, False, ['n']), (1, True, ['n'])]
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
        """Its step, from 0 for the input."""
        return self.position.step

    @property
    def is_terminal(self) -> bool:
        """True if no node comes next."""
        return not self.position.next
