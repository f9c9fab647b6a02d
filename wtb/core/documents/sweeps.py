"""Sweeps: the documents of `wtb list`, `wtb status`, `wtb show SWEEP` and `wtb watch`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.matrix import AsOf
from wtb.core.documents.outputs import CellComment
from wtb.core.documents.plan import BudgetDocument
from wtb.core.documents.shared_types import (
    ApprovalMode,
    Better,
    CellCounts,
    CellStatus,
    Combination,
    FailureCauses,
    Liveness,
    NodeRunCounts,
    RunStatus,
    SweepStatus,
)
from wtb.core.scoring.unknown_costs import UnknownCost
from wtb.core.tree.stored_spec import Limits
from wtb.core.values import Json


class SweepName(TypedDict):
    """The name of a sweep."""

    id: str
    name: str
    status: SweepStatus


class SweepReason(SweepName):
    """The name of a sweep, and the reason of its status."""

    reason: str | None


class SweepOfExecution(SweepName):
    """The sweep of an execution; `single` if somebody started the execution by itself."""

    kind: Literal["sweep", "single"]


class SweepDocument(TypedDict):
    """A sweep in a list. The status of a single execution is that of the execution, which also waits for people."""

    id: str
    name: str
    status: RunStatus
    reason: str | None
    workflow: str | None
    workflow_version: str | None
    project: str | None
    session: str
    cells: CellCounts
    created_at: str
    started_at: str | None
    finished_at: str | None


class SweepsDocument(TypedDict):
    """Sweeps, newest first."""

    sweeps: list[SweepDocument]


class RunDocument(TypedDict):
    """A single execution in a list: one input that ran through a workflow. Commands take its `id`."""

    id: str
    execution: str | None
    status: RunStatus
    reason: str | None
    error: str | None
    workflow: str | None
    workflow_version: str | None
    metadata: NotRequired[dict[str, Json]]
    project: str | None
    session: str
    created_at: str
    started_at: str | None
    finished_at: str | None


class RunsDocument(TypedDict):
    """Single executions, newest first."""

    runs: list[RunDocument]


class SweepStanding(TypedDict):
    """A sweep in a status document."""

    id: str
    name: str
    status: SweepStatus
    reason: str | None
    workflow: str | None
    workflow_version: str | None
    project: str | None
    session: NotRequired[str]
    created_at: str
    started_at: str | None
    finished_at: str | None


class StatusCost(TypedDict):
    """The amounts that a sweep and its forks have spent so far."""

    usd: float
    by_forks_usd: float  # of that
    tokens_in: int
    tokens_out: int
    unknown: NotRequired[list[UnknownCost]]  # why less is recorded than was spent


class SweepOwner(TypedDict):
    """A process that runs a sweep, and whether it is alive, as far as this machine can see."""

    host: str
    pid: int
    state: Liveness


class QueueWait(TypedDict):
    """Executions that wait for a worker, and why."""

    queue: str
    executions: int
    why: str


class QueueDocument(TypedDict):
    """A sweep that workers run: slots at work on it, and what waits."""

    priority: int
    slots: int
    waiting: list[QueueWait]
    warnings: list[str]


class StalledExecution(TypedDict):
    """An execution in which a node has reported nothing for longer than `run.stall`."""

    execution: str
    case: str
    since: str


class NextStep(TypedDict):
    """An act that is possible for a person now, and why."""

    why: str
    command: str


class StatusDocument(TypedDict):
    """The progress of a sweep, its runners, what holds it up, and how to continue."""

    sweep: SweepStanding
    approval: NotRequired[list[ApprovalMode]]  # when people are asked without a node asking
    cells: CellCounts
    node_runs: NodeRunCounts
    cost: StatusCost
    budgets: list[BudgetDocument]
    failures: FailureCauses
    owners: list[SweepOwner]
    queue: QueueDocument | None
    stalled: list[StalledExecution]
    warnings: list[str]
    next: NextStep | None


class MadeVariant(TypedDict):
    """A variant that a sweep makes from another one, from the default (None), or from another function.

    `params` are the parameters that it changes, with the texts of files, except long ones.
    """

    of: str | None
    params: dict[str, Json]


class SweepDefinition(TypedDict):
    """The definition of a sweep. Parameters, evaluators and limits are as in the sweep file.

    `variants` are those that the sweep makes, by node and name.
    """

    workflow: str | None
    metadata: NotRequired[dict[str, Json]]
    cases: int
    cases_from: Any
    vary: dict[str, list[str]]
    variants: NotRequired[dict[str, dict[str, MadeVariant]]]
    combinations: int
    repeats: int
    seed: int
    params: dict[str, Any]
    baseline: Combination | None
    evaluate: list[Any]
    limits: Limits


class SummaryDocument(StatusDocument):
    """A sweep with its definition and its progress."""

    definition: SweepDefinition
    metrics: list[str]


class CellDocument(TypedDict):
    """A cell. Figures are as if alone, and null until its end."""

    combination: Combination
    case: str
    repeat: int
    tags: list[str]
    expected: Any
    status: CellStatus
    state: dict[str, Json]
    scores: dict[str, float | None]  # null where the evaluator failed
    counted: NotRequired[dict[str, float | None]]  # scores as the matrix counts them; left out if they are the same
    reasons: NotRequired[dict[str, str]]  # of the scores that have one, and why others are null
    comments: NotRequired[list[CellComment]]  # the oldest first; left out if there are none
    execution: str | None
    error: str | None
    latency_s: float | None
    cost_usd: float | None
    tokens_in: int | None
    tokens_out: int | None


class CellsDocument(TypedDict):
    """Cells of a sweep."""

    cells: list[CellDocument]


class LiveMetric(TypedDict):
    """Scores of a row so far: cells with one, and their mean."""

    n: int
    mean: float


class LiveRow(TypedDict):
    """A combination so far, in cells."""

    combination: Combination
    cells: int
    done: int
    failed: int
    cost_usd: float | None
    metrics: dict[str, LiveMetric]


class LiveDirection(TypedDict):
    """The direction of better scores."""

    better: Better


class LiveDocument(TypedDict):
    """A sweep by its tallied scores so far."""

    sweep: SweepReason
    tallied_at: str | None
    cells: CellCounts
    rows: list[LiveRow]
    metrics: dict[str, LiveDirection]


class LeaderDocument(TypedDict):
    """The leader by a metric."""

    combination: Combination | None
    clear: bool
    candidates: list[Combination]
    n: int
    mean: float | None


class LeadersDocument(TypedDict):
    """The leaders by each metric, and the number of cases; null at the end."""

    as_of: AsOf | None
    best: dict[str, LeaderDocument | None]


class WatchedWork(TypedDict):
    """The work so far. Node runs a second are null at the first look."""

    node_runs: int
    node_runs_per_s: float | None
    usd: float


class WatchedSweep(WatchedWork):
    """One of all open sweeps; the status of a single execution is its own."""

    id: str
    name: str
    status: RunStatus
    reason: str | None
    queued: bool
    priority: int
    cells: CellCounts


class WatchedOneSweep(WatchedSweep, LeadersDocument):
    """The sweep that is watched."""

    budgets: list[BudgetDocument]
    slots: int | None
    stalled: list[StalledExecution]
    warnings: list[str]


class WorkerDocument(TypedDict):
    """A live worker."""

    name: str
    slots: int
    busy: int
    queues: list[str]
    seen_s: float  # since the heartbeat that is the longest ago
    version: str
    clock_s: float  # by which its clock is ahead of the database's


class WatchedQueue(TypedDict):
    """A queue: executions that wait, messages on the broker (null: unknown) and workers that take from it."""

    name: str
    pending: int
    messages: int | None
    workers: int


class BrokerDocument(TypedDict):
    """The broker, and whether it could be reached."""

    url: str
    reached: bool
    problem: str | None


class WatchDocument(TypedDict):
    """One look at a sweep (`sweep`) or at all open ones (`sweeps`); a line for each look."""

    at: str
    sweep: NotRequired[WatchedOneSweep]
    sweeps: NotRequired[list[WatchedSweep]]
    workers: list[WorkerDocument]
    queues: list[WatchedQueue]
    broker: BrokerDocument | None
