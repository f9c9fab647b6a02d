"""Events of sweeps and executions, as `wtb log` prints them. A closed union, distinguished by `kind`."""

from __future__ import annotations

from typing_extensions import TypedDict

from wtb.core.documents import execution_events, node_events, sweep_events
from wtb.core.documents.shared_types import Severity

EventDocument = (
    sweep_events.SweepSubmitted
    | sweep_events.SweepRunning
    | sweep_events.SweepPaused
    | sweep_events.SweepCompleted
    | sweep_events.SweepFailed
    | sweep_events.SweepCancelled
    | sweep_events.SweepDiskFull
    | sweep_events.SweepMemoryFull
    | sweep_events.SweepMemoryHasRoom
    | sweep_events.SweepDiskHasRoom
    | sweep_events.SweepBreakpoints
    | sweep_events.SweepRowAdded
    | sweep_events.SweepCopied
    | sweep_events.SweepExtended
    | sweep_events.CombinationsStopped
    | sweep_events.CombinationsRestarted
    | sweep_events.SweepCollected
    | sweep_events.SweepPinned
    | sweep_events.SweepUnpinned
    | sweep_events.BaselineSet
    | sweep_events.BaselineRemoved
    | sweep_events.BudgetThreshold
    | sweep_events.BudgetReached
    | sweep_events.CaseErased
    | sweep_events.CommentAdded
    | sweep_events.CommentDeleted
    | sweep_events.PolicyDecided
    | sweep_events.WorkerRefused
    | sweep_events.ScoreRecorded
    | sweep_events.CellSucceeded
    | sweep_events.CellFailed
    | sweep_events.CellSetAside
    | sweep_events.CellCancelled
    | execution_events.ExecutionStarted
    | execution_events.ExecutionForked
    | execution_events.ExecutionCompleted
    | execution_events.ExecutionFailed
    | execution_events.ExecutionCancelled
    | execution_events.ExecutionPaused
    | execution_events.ExecutionPausing
    | execution_events.ExecutionWaiting
    | execution_events.ExecutionResumed
    | execution_events.ExecutionRetried
    | execution_events.ExecutionRewound
    | execution_events.ExecutionTakenBack
    | execution_events.ExecutionStalled
    | execution_events.ExecutionUnstalled
    | execution_events.ExecutionSuperseded
    | execution_events.ExecutionRolledBack
    | execution_events.ExecutionRedone
    | execution_events.ExecutionImported
    | execution_events.RollbackBegun
    | execution_events.ForkMade
    | execution_events.CheckpointCreated
    | execution_events.CheckpointNamed
    | execution_events.DecisionMade
    | execution_events.CheckpointPinned
    | execution_events.CheckpointUnpinned
    | execution_events.JoinUnmet
    | node_events.NodeRunStarted
    | node_events.NodeRunSucceeded
    | node_events.NodeRunFailed
    | node_events.NodeRunSkipped
    | node_events.VariantApplied
    | node_events.ModelCalled
    | node_events.ToolCalled
    | node_events.ToolReversed
    | node_events.AttemptFailed
    | node_events.AttemptLost
    | node_events.AttemptPostponed
    | node_events.AnsweredAfterFailure
    | node_events.NodeProgress
    | node_events.NodeMetric
    | node_events.NodeSample
    | node_events.NodeStream
    | node_events.ApprovalAsked
    | node_events.ApprovalAnswered
    | node_events.ApprovalExpired
    | node_events.ApprovalWithdrawn
    | node_events.CostUnknown
    | node_events.NodeLog
)


class EventCount(TypedDict):
    """The number of events of a kind and severity."""

    kind: str
    severity: Severity
    count: int


class EventCountsDocument(TypedDict):
    """The events of a sweep, counted."""

    events: list[EventCount]
