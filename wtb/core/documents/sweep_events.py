"""Events of sweeps and of their cells."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import Event, Scores


class Nothing(TypedDict):
    """Data without any keys."""


class Decision(TypedDict):
    """The person who decided, and the reason."""

    reason: str | None
    by: str


class SweepSubmittedData(TypedDict):
    """Of `sweep.submitted`."""

    name: str
    cells: int
    combinations: int


class SweepSubmitted(Event):
    """A sweep was written to the database."""

    kind: Literal["sweep.submitted"]
    data: SweepSubmittedData


class SweepRunning(Event):
    """A sweep runs, for the first time or again."""

    kind: Literal["sweep.running"]
    data: Decision


class SweepPaused(Event):
    """A sweep paused: by a person, a limit or the end of its process."""

    kind: Literal["sweep.paused"]
    data: Decision


class SweepCompleted(Event):
    """All cells of a sweep have an outcome, or its own rule ended it."""

    kind: Literal["sweep.completed"]
    data: Decision


class SweepFailed(Event):
    """A sweep cannot run."""

    kind: Literal["sweep.failed"]
    data: Decision


class SweepCancelled(Event):
    """A person ended a sweep."""

    kind: Literal["sweep.cancelled"]
    data: Decision


class SweepDiskFullData(TypedDict):
    """Of `sweep.disk_full`."""

    reason: str
    worker: NotRequired[str]


class SweepDiskFull(Event):
    """A sweep waits for room on a disk."""

    kind: Literal["sweep.disk_full"]
    data: SweepDiskFullData


class SweepDiskHasRoomData(TypedDict):
    """Of `sweep.disk_has_room`."""

    worker: NotRequired[str]


class SweepDiskHasRoom(Event):
    """There is room on the disk again."""

    kind: Literal["sweep.disk_has_room"]
    data: SweepDiskHasRoomData


class SweepMemoryFullData(TypedDict):
    """Of `sweep.memory_full`."""

    reason: str


class SweepMemoryFull(Event):
    """Node runs of a sweep wait, because the node processes of its session use more memory than its quota."""

    kind: Literal["sweep.memory_full"]
    data: SweepMemoryFullData


class SweepMemoryHasRoom(Event):
    """The node processes of the session use less memory than its quota again."""

    kind: Literal["sweep.memory_has_room"]
    data: Nothing


class SweepBreakpointsData(TypedDict):
    """Of `sweep.breakpoints`."""

    breakpoints: list[str]
    by: str


class SweepBreakpoints(Event):
    """The breakpoints of a sweep were changed."""

    kind: Literal["sweep.breakpoints"]
    data: SweepBreakpointsData


SweepCopiedData = TypedDict("SweepCopiedData", {"from": str, "by": str})


class SweepCopied(Event):
    """A sweep was copied from another database."""

    kind: Literal["sweep.copied"]
    data: SweepCopiedData


SweepRowAddedData = TypedDict(
    "SweepRowAddedData",
    {
        "combination": dict[str, str],
        "cells": int,
        "from": str,
        "case": str,
        "by": str,
        "reason": str | None,
    },
)


class SweepRowAdded(Event):
    """The change of a fork runs for every case, as another combination."""

    kind: Literal["sweep.row_added"]
    data: SweepRowAddedData


class SweepExtendedData(TypedDict):
    """Of `sweep.extended`.

    Attributes:
        cells: How many cells were added.
        cases: How many cases.
        repeats: How many repeats.
        combinations: The first hundred combinations, in words.
    """

    cells: int
    cases: int
    repeats: int
    combinations: list[str]
    by: str
    reason: str | None


class SweepExtended(Event):
    """Cases, repeats or combinations were added."""

    kind: Literal["sweep.extended"]
    data: SweepExtendedData


class CombinationsStoppedData(TypedDict):
    """Of `sweep.combination_stopped`. `cells` are the skipped ones."""

    combinations: list[str]
    cells: int
    by: str
    reason: str


class CombinationsStopped(Event):
    """Open cells of combinations were skipped; the other cells continue."""

    kind: Literal["sweep.combination_stopped"]
    data: CombinationsStoppedData


class CombinationsRestartedData(TypedDict):
    """Of `sweep.combination_restarted`. `cells` are those that run again."""

    combinations: list[str]
    cells: int
    by: str


class CombinationsRestarted(Event):
    """Stopped combinations run again."""

    kind: Literal["sweep.combination_restarted"]
    data: CombinationsRestartedData


class SweepCollectedData(TypedDict):
    """Of `sweep.collected`."""

    checkpoints: int
    node_runs: int
    attempts: int
    usd: float
    tokens_in: int
    tokens_out: int


class SweepCollected(Event):
    """The retention policy removed parts of a sweep."""

    kind: Literal["sweep.collected"]
    data: SweepCollectedData


class SweepPinned(Event):
    """Retention keeps a sweep."""

    kind: Literal["sweep.pinned"]
    data: Nothing


class SweepUnpinned(Event):
    """Retention may remove a sweep again."""

    kind: Literal["sweep.unpinned"]
    data: Nothing


class BaselineSetData(TypedDict):
    """Of `baseline.set`."""

    name: str


class BaselineSet(Event):
    """A sweep became a baseline."""

    kind: Literal["baseline.set"]
    data: BaselineSetData


class BaselineRemoved(Event):
    """A sweep is no baseline any more."""

    kind: Literal["baseline.removed"]
    data: BaselineSetData


class BudgetThresholdData(TypedDict):
    """Of `budget.threshold`."""

    scope: str
    name: str | None
    node: str | None
    kind: str
    most: float
    spent: float
    share: float


class BudgetThreshold(Event):
    """A share of a budget is spent."""

    kind: Literal["budget.threshold"]
    data: BudgetThresholdData


class BudgetReachedData(TypedDict):
    """Of `budget.reached`."""

    scope: str
    name: str | None
    node: str | None
    kind: str
    most: float
    spent: float
    wanted: float | None


class BudgetReached(Event):
    """A budget is used up; `wanted` is the amount that an attempt would have reserved."""

    kind: Literal["budget.reached"]
    data: BudgetReachedData


class CaseErasedData(TypedDict):
    """Of `case.erased`. `cells` and `executions` are how many were removed."""

    case: str
    by: str
    reason: str | None
    cells: int
    executions: int


class CaseErased(Event):
    """A case was erased, with all that belonged to it."""

    kind: Literal["case.erased"]
    data: CaseErasedData


class CommentData(TypedDict):
    """Of `comment.added` and `comment.deleted`. `number` is that of the comment within the sweep."""

    number: int
    case: str
    repeat: int
    combination: int
    by: str


class CommentAdded(Event):
    """Somebody wrote a comment on a cell."""

    kind: Literal["comment.added"]
    data: CommentData


class CommentDeleted(Event):
    """Somebody deleted a comment on a cell."""

    kind: Literal["comment.deleted"]
    data: CommentData


class PolicyDecidedData(TypedDict):
    """Of `policy.decided`. `rules` are the policies that decided, `errors` those that failed, which denies the act.

    The other keys concern acts of nodes.

    Attributes:
        on: The object of the act, for example a tool.
        arguments: Typed JSON, shortened; left out of allowed calls, which are recorded by themselves.
        asked: Whether a person is asked.
        answered_by: The person who answered.
    """

    operation: str
    by: str
    allowed: bool
    rules: list[str]
    errors: list[str]
    node: NotRequired[str]
    variant: NotRequired[str]
    task: NotRequired[str]
    attempt: NotRequired[int]
    on: NotRequired[str]
    arguments: NotRequired[str | None]
    asked: NotRequired[bool]
    answered_by: NotRequired[str | None]


class PolicyDecided(Event):
    """Policies allowed or denied an act on a sweep."""

    kind: Literal["policy.decided"]
    data: PolicyDecidedData


class WorkerRefusedData(TypedDict):
    """Of `worker.refused`."""

    worker: str
    runner: str
    reason: str


class WorkerRefused(Event):
    """A worker cannot run a sweep, because its code differs."""

    kind: Literal["worker.refused"]
    data: WorkerRefusedData


class ScoreRecorded(Event):
    """A cell was scored again: scores by metric, None if the evaluator failed."""

    kind: Literal["score.recorded"]
    data: Scores


class CellSucceededData(TypedDict):
    """Of `cell.succeeded`."""

    case: str
    repeat: int
    combination: int
    scores: Scores


class CellSucceeded(Event):
    """A cell has its outcome."""

    kind: Literal["cell.succeeded"]
    data: CellSucceededData


class CellFailedData(TypedDict):
    """Of `cell.failed`."""

    case: str
    repeat: int
    combination: int
    error: str


class CellFailed(Event):
    """A cell failed."""

    kind: Literal["cell.failed"]
    data: CellFailedData


class CellSetAside(Event):
    """A cell was set aside after too many deaths of its process."""

    kind: Literal["cell.set_aside"]
    data: CellFailedData


class CellCancelledData(TypedDict):
    """Of `cell.cancelled`."""

    case: str
    repeat: int
    combination: int
    reason: str
    error: NotRequired[str]
    by: NotRequired[str]
    question: NotRequired[str]


class CellCancelled(Event):
    """A cell was cancelled: by a person, or by a question that was rejected."""

    kind: Literal["cell.cancelled"]
    data: CellCancelledData
