"""Events: what happened to a sweep or an execution, as `wtb log` prints it. A closed union, told apart by `kind`."""

from __future__ import annotations

from typing_extensions import TypedDict

from wtb.core.documents.events import executions, nodes, sweeps
from wtb.core.documents.events.common import Severity

EventDocument = (
    sweeps.SweepSubmitted
    | sweeps.SweepRunning
    | sweeps.SweepPaused
    | sweeps.SweepCompleted
    | sweeps.SweepFailed
    | sweeps.SweepCancelled
    | sweeps.SweepDiskFull
    | sweeps.SweepMemoryFull
    | sweeps.SweepMemoryHasRoom
    | sweeps.SweepDiskHasRoom
    | sweeps.SweepBreakpoints
    | sweeps.SweepRowAdded
    | sweeps.SweepCopied
    | sweeps.SweepExtended
    | sweeps.CombinationsStopped
    | sweeps.CombinationsRestarted
    | sweeps.SweepCollected
    | sweeps.SweepPinned
    | sweeps.SweepUnpinned
    | sweeps.BaselineSet
    | sweeps.BaselineRemoved
    | sweeps.BudgetThreshold
    | sweeps.BudgetReached
    | sweeps.CaseErased
    | sweeps.CommentAdded
    | sweeps.CommentDeleted
    | sweeps.PolicyDecided
    | sweeps.WorkerRefused
    | sweeps.ScoreRecorded
    | sweeps.CellSucceeded
    | sweeps.CellFailed
    | sweeps.CellSetAside
    | sweeps.CellCancelled
    | executions.ExecutionStarted
    | executions.ExecutionForked
    | executions.ExecutionCompleted
    | executions.ExecutionFailed
    | executions.ExecutionCancelled
    | executions.ExecutionPaused
    | executions.ExecutionPausing
    | executions.ExecutionWaiting
    | executions.ExecutionResumed
    | executions.ExecutionRetried
    | executions.ExecutionRewound
    | executions.ExecutionTakenBack
    | executions.ExecutionStalled
    | executions.ExecutionUnstalled
    | executions.ExecutionSuperseded
    | executions.ExecutionRolledBack
    | executions.ExecutionRedone
    | executions.ExecutionImported
    | executions.RollbackBegun
    | executions.ForkMade
    | executions.CheckpointCreated
    | executions.CheckpointNamed
    | executions.DecisionMade
    | executions.CheckpointPinned
    | executions.CheckpointUnpinned
    | executions.JoinUnmet
    | nodes.NodeRunStarted
    | nodes.NodeRunSucceeded
    | nodes.NodeRunFailed
    | nodes.NodeRunSkipped
    | nodes.VariantApplied
    | nodes.ModelCalled
    | nodes.ToolCalled
    | nodes.ToolReversed
    | nodes.AttemptFailed
    | nodes.AttemptLost
    | nodes.AttemptPostponed
    | nodes.AnsweredAfterFailure
    | nodes.NodeProgress
    | nodes.NodeMetric
    | nodes.NodeSample
    | nodes.NodeStream
    | nodes.ApprovalAsked
    | nodes.ApprovalAnswered
    | nodes.ApprovalExpired
    | nodes.ApprovalWithdrawn
    | nodes.CostUnknown
    | nodes.NodeLog
)


class EventCount(TypedDict):
    """How many events there are of a kind and severity."""

    kind: str
    severity: Severity
    count: int


class EventCountsDocument(TypedDict):
    """The events of a sweep, counted."""

    events: list[EventCount]
