"""Events of executions and of their checkpoints."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import Event, Scores
from wtb.core.values import Json

# From a checkpoint to another, below which the new head is. Calls of tools by what became of them.
Rollback = TypedDict(
    "Rollback",
    {
        "from": str,
        "to": str,
        "head": str,
        "nodes": list[str],
        "words": str,
        "by": str,
        "reason": str | None,
        "superseded": NotRequired[list[str]],
        "undone": list[Any],
        "redone": list[Any],
        "irreversible": list[Any],
        "failed": list[Any],
        "shared": list[Any],
    },
)


ExecutionStartedData = TypedDict(
    "ExecutionStartedData",
    {
        "case": str,
        "repeat": int,
        "from": NotRequired[str],
    },
)


class ExecutionStarted(Event):
    """An execution began; `from` is the one that it forked from or retries."""

    kind: Literal["execution.started"]
    data: ExecutionStartedData


class ExecutionForkedData(TypedDict):
    """Of `execution.forked`."""

    children: int
    by: list[str]


class ExecutionForked(Event):
    """An execution forked into several, by the nodes in which their cells differ."""

    kind: Literal["execution.forked"]
    data: ExecutionForkedData


class ExecutionCompletedData(TypedDict):
    """Of `execution.completed`.

    Attributes:
        cells: How many cells the execution stood for; a fork has case, repeat and scores instead.
        result: Key of the final state -> digest of its value; not in logs of older versions.
        values: The same with the values, on request.
    """

    cells: NotRequired[int]
    result: NotRequired[dict[str, str]]
    values: NotRequired[dict[str, Json]]
    case: NotRequired[str]
    repeat: NotRequired[int]
    scores: NotRequired[Scores]


class ExecutionCompleted(Event):
    """An execution is completed, with the number of its cells, or the scores of a manual fork."""

    kind: Literal["execution.completed"]
    data: ExecutionCompletedData


class ExecutionFailedData(TypedDict):
    """Of `execution.failed`.

    Attributes:
        cells: How many cells the execution stood for; a fork has case and repeat instead.
        error: Why it failed; of executions of cells not in logs of older versions.
        node: The node that failed, if one did.
    """

    cells: NotRequired[int]
    case: NotRequired[str]
    repeat: NotRequired[int]
    error: NotRequired[str]
    node: NotRequired[str]


class ExecutionFailed(Event):
    """An execution failed."""

    kind: Literal["execution.failed"]
    data: ExecutionFailedData


class ExecutionCancelledData(TypedDict):
    """Of `execution.cancelled`."""

    cells: NotRequired[int]
    case: NotRequired[str]
    repeat: NotRequired[int]
    reason: NotRequired[str]
    error: NotRequired[str]
    node: NotRequired[str]
    by: NotRequired[str]


class ExecutionCancelled(Event):
    """An execution was cancelled."""

    kind: Literal["execution.cancelled"]
    data: ExecutionCancelledData


class ExecutionPausedData(TypedDict):
    """Of `execution.paused`."""

    reason: str
    by: str | None
    breakpoint: NotRequired[str]


class ExecutionPaused(Event):
    """An execution paused, at a breakpoint or on a person's request."""

    kind: Literal["execution.paused"]
    data: ExecutionPausedData


class ExecutionPausingData(TypedDict):
    """Of `execution.pausing`."""

    reason: str
    by: str


class ExecutionPausing(Event):
    """An execution pauses as soon as its node has ended."""

    kind: Literal["execution.pausing"]
    data: ExecutionPausingData


class ExecutionWaitingData(TypedDict):
    """Of `execution.waiting`."""

    reason: str
    by: str | None


class ExecutionWaiting(Event):
    """An execution waits for an answer."""

    kind: Literal["execution.waiting"]
    data: ExecutionWaitingData


class ExecutionResumedData(TypedDict):
    """Of `execution.resumed`."""

    by: str
    changed: list[str]
    head: NotRequired[str | None]


class ExecutionResumed(Event):
    """An execution was resumed; `changed` has the keys of its state that a person changed."""

    kind: Literal["execution.resumed"]
    data: ExecutionResumedData


ExecutionRetriedData = TypedDict(
    "ExecutionRetriedData",
    {
        "cells": int,
        "from": str,
    },
)


class ExecutionRetried(Event):
    """Failed cells are retried in a new execution."""

    kind: Literal["execution.retried"]
    data: ExecutionRetriedData


class ExecutionRewoundData(TypedDict):
    """Of `execution.rewound`."""

    checkpoint: str | None
    executions: int
    cells: int


class ExecutionRewound(Event):
    """Damaged values are computed again, from an earlier checkpoint."""

    kind: Literal["execution.rewound"]
    data: ExecutionRewoundData


class ExecutionTakenBackData(TypedDict):
    """Of `execution.taken_back`."""

    runner: str
    losses: int


class ExecutionTakenBack(Event):
    """The lease of a runner expired, so that others may claim its execution."""

    kind: Literal["execution.taken_back"]
    data: ExecutionTakenBackData


class ExecutionStalledData(TypedDict):
    """Of `execution.stalled`."""

    node: str
    variant: str
    attempt: int
    silent_s: float


class ExecutionStalled(Event):
    """A node has reported nothing for a while."""

    kind: Literal["execution.stalled"]
    data: ExecutionStalledData


class ExecutionUnstalledData(TypedDict):
    """Of `execution.unstalled`."""

    node: str
    variant: str
    attempt: int


class ExecutionUnstalled(Event):
    """A node that had stalled reports again."""

    kind: Literal["execution.unstalled"]
    data: ExecutionUnstalledData


class ExecutionSupersededData(TypedDict):
    """Of `execution.superseded`."""

    by_rollback_of: str


class ExecutionSuperseded(Event):
    """A fork was ended by a rollback of the execution that it came from."""

    kind: Literal["execution.superseded"]
    data: ExecutionSupersededData


class ExecutionRolledBack(Event):
    """An execution is at an earlier checkpoint again."""

    kind: Literal["execution.rolled_back"]
    data: Rollback


class ExecutionRedone(Event):
    """A rollback was undone."""

    kind: Literal["execution.redone"]
    data: Rollback


ExecutionImportedData = TypedDict(
    "ExecutionImportedData",
    {
        "from": str,
        "exported_at": float,
        "host": str,
        "by": str,
    },
)


class ExecutionImported(Event):
    """An execution was read from an archive."""

    kind: Literal["execution.imported"]
    data: ExecutionImportedData


class RollbackBegunData(TypedDict):
    """Of `rollback.begun`."""

    by: str
    to: str
    status: str
    cells: int
    redo: bool


class RollbackBegun(Event):
    """A rollback began; tools are undone next."""

    kind: Literal["rollback.begun"]
    data: RollbackBegunData


ForkMadeData = TypedDict(
    "ForkMadeData",
    {
        "from": str,
        "at": str,
        "head": str,
        "set": list[str],
        "variants": dict[str, str],
        "by": str,
        "reason": str | None,
    },
)


class ForkMade(Event):
    """A person forked an execution."""

    kind: Literal["fork.made"]
    data: ForkMadeData


class CheckpointCreatedData(TypedDict):
    """Of `checkpoint.created`."""

    checkpoint: str
    step: int
    next: list[str]
    node: NotRequired[str]
    variant: NotRequired[str]
    name: NotRequired[str | None]
    task: NotRequired[str]


class CheckpointCreated(Event):
    """A step was committed, or a node took a checkpoint inside."""

    kind: Literal["checkpoint.created"]
    data: CheckpointCreatedData


class CheckpointNamedData(TypedDict):
    """Of `checkpoint.named`."""

    checkpoint: str
    name: str
    note: NotRequired[str]
    by: str


class CheckpointNamed(Event):
    """Somebody named a checkpoint."""

    kind: Literal["checkpoint.named"]
    data: CheckpointNamedData


class EdgeTried(NamedTuple):
    """An edge of a decision: its target, its condition or branch key, and whether it was taken."""

    to: str
    when: str | None
    is_taken: bool


class DecisionMadeData(TypedDict):
    """Of `decision`.

    Attributes:
        checkpoint: The checkpoint with the state on which it was made, and which has the next nodes.
        node: The node that had ended.
        to: The node that comes next, or the end.
        key: Of a branch the key that its function returned.
        tried: The edges up to the one that was taken, in their order; of a branch all.
    """

    checkpoint: str
    node: str
    to: str
    key: str | None
    why: str
    tried: list[EdgeTried]


class DecisionMade(Event):
    """Conditions or a branch decided which node comes next."""

    kind: Literal["decision"]
    data: DecisionMadeData


class CheckpointPinnedData(TypedDict):
    """Of `checkpoint.pinned`."""

    checkpoint: str
    name: NotRequired[str]


class CheckpointPinned(Event):
    """Retention keeps a checkpoint."""

    kind: Literal["checkpoint.pinned"]
    data: CheckpointPinnedData


class CheckpointUnpinnedData(TypedDict):
    """Of `checkpoint.unpinned`."""

    checkpoint: str


class CheckpointUnpinned(Event):
    """Retention may remove a checkpoint again."""

    kind: Literal["checkpoint.unpinned"]
    data: CheckpointUnpinnedData


class JoinUnmetData(TypedDict):
    """Of `join.unmet`."""

    joins: dict[str, list[str]]


class JoinUnmet(Event):
    """An execution ended while joins waited; they have the sources that had arrived, by node."""

    kind: Literal["join.unmet"]
    data: JoinUnmetData
