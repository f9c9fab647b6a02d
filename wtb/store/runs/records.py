"""Rows as a runner writes them: what a flush inserts and changes, by column.

They are dictionaries, since statements are made of their columns. A type that is not total is of changes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NotRequired, Required, TypedDict

from wtb.core.failures import StoredFailure
from wtb.core.questions import Kind
from wtb.core.scoring.measure import StoredMeasure
from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.core.values import Json, Value
from wtb.store.limits.reservations import Settlement
from wtb.store.rows.control import StoredDefault
from wtb.store.rows.executions import AskedRow
from wtb.store.rows.sweeps import NewEvent


class NewExecution(TypedDict, total=False):
    """An execution that begins, or what changes of one.

    ended_event: of one that says its end, how many events of cells follow it; in a batch the last one's number.
    children: into how many it forked, if its end is that.
    """

    id: str
    session_id: str
    sweep_id: str
    parent_id: str | None
    origin: str
    case_number: int
    repeat: int
    combinations: list[int]
    status: str
    reason: str | None
    head_id: str | None
    failure: StoredFailure | None
    owner_id: str | None
    token: int
    lease_until: float | None
    kills: int
    queue: str | None
    task_id: str | None
    choices: Mapping[str, str] | None
    edited: bool
    asked: AskedRow | None
    passed_id: str | None
    stalled_at: float | None
    deferred: Mapping[str, str] | None
    created_at: float
    finished_at: float | None
    ended_transaction: int | None
    ended_event: int | None
    children: int | None


class NewCheckpoint(TypedDict):
    """A checkpoint. created_event: of one that says its event, the event's number in the batch."""

    id: str
    sweep_id: str
    execution_id: str
    parent_id: str | None
    position: StoredPosition
    state: Mapping[str, str]
    writers: list[list[str]]
    workspace: str | None
    totals: list[float]
    trigger: Trigger
    name: str | None
    inside: StoredInside | None
    created_at: float
    created_transaction: NotRequired[int | None]
    created_event: NotRequired[int | None]


class NewNodeRun(TypedDict, total=False):
    """A node run that begins, or what changes of one. started_event, ended_event: the event's number in the batch."""

    id: str
    sweep_id: str
    execution_id: str
    checkpoint_id: str
    task: str
    node: str
    variant: str
    visit: int
    status: str
    attempts: int
    cells: int
    fingerprint: str
    writes: dict[str, str] | None
    workspace: str | None
    started_at: float
    duration_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    started_transaction: int | None
    started_event: int | None
    ended_transaction: int | None
    ended_event: int | None
    ended_at: float | None
    replaces: str | None
    begun_at: float | None
    stdout: str | None
    stderr: str | None
    lag_s: float | None


# What changes of a node run when its first attempt gets a row of its own.
FIRST_HAS_ROW: Final[NewNodeRun] = {
    "begun_at": None,
    "duration_s": 0.0,
    "usd": 0.0,
    "tokens_in": 0,
    "tokens_out": 0,
    "stdout": None,
    "stderr": None,
}


class NewAttempt(TypedDict):
    """An attempt. again: it was written before, while it ran."""

    node_run_id: str
    number: int
    status: str
    started_at: float
    duration_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    failure: StoredFailure | None
    fingerprint: str
    stdout: str | None
    stderr: str | None
    again: NotRequired[bool]


class NewDecision(TypedDict):
    """Why an execution went from a node to another one."""

    checkpoint_id: str
    number: int
    node: str
    to: str
    key: str | None
    why: str
    tried: list[Json]


class NewFile(TypedDict):
    """A file that snapshots of a session refer to."""

    session_id: str
    digest: str
    size: int


class NewCombination(TypedDict):
    """A combination of a sweep that is submitted."""

    sweep_id: str
    number: int
    choices: Mapping[str, str]


class CaseColumns(TypedDict):
    """A case of a sweep that is submitted. input: key of the state -> digest of its value."""

    sweep_id: str
    number: int
    id: str
    input: Mapping[str, str]
    expected: str | None
    tags: list[str]
    workspace: str | None
    cluster: str | None


class CellChange(TypedDict, total=False):
    """How a cell stands; what its execution has spent and how it failed is left out of one that is open."""

    status: Required[str]
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    node_runs: int | None
    failure: StoredFailure | None
    edited: bool
    finished_at: float | None


class NewCell(CellChange):
    """A cell of a sweep."""

    sweep_id: str
    case_number: int
    repeat: int
    combination: int
    execution_id: str


class NewRollback(TypedDict):
    """A rollback that was made."""

    id: str
    sweep_id: str
    execution_id: str
    from_id: str
    to_id: str
    head_id: str
    status: str
    nodes: list[str]
    superseded: list[str]
    by: str
    reason: str | None


class HeldCell(TypedDict):
    """The change of a cell whose execution pauses or waits."""

    sweep_id: str
    case_number: int
    repeat: int
    combination: int
    status: str
    execution_id: str


class Outcome(HeldCell):
    """The change of a cell that has ended."""

    elapsed_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    node_runs: int
    failure: StoredFailure | None
    edited: bool


class NewQuestion(TypedDict):
    """What a person is asked at a checkpoint. timeout: seconds after which its default counts; it is no column."""

    id: str
    session_id: str
    sweep_id: str
    checkpoint_id: str
    key: str
    kind: Kind
    node: str | None
    number: int
    question: str
    options: list[str] | None
    context: str | None
    default: StoredDefault | None
    status: str
    timeout: float | None


class NewScore(TypedDict):
    """A score of a cell, or why it has none."""

    sweep_id: str
    metric: str
    case_number: int
    repeat: int
    combination: int
    value: float | None
    error: str | None
    observed: str | None
    version: str | None
    reason: str | None


class NewMetric(StoredMeasure):
    """A metric of a sweep."""

    sweep_id: str
    name: str
    number: int


class Logged(TypedDict):
    """A row that the log derives an event from; the flush replaces its position."""

    sweep_id: str
    logged_transaction: int | None
    logged_event: int | None


class NewInvocation(Logged):
    """A call of a declared tool. arguments, result: typed JSON."""

    node_run_id: str
    attempt: int
    number: int
    tool: str
    arguments: str
    result: str | None
    error: str | None
    at: float
    duration_s: float
    status: str
    version: str | None


class NewCall(Logged):
    """A call of a model or tool. prompt, response: typed JSON."""

    id: str
    node_run_id: str
    attempt: int
    model: str | None
    tool: str | None
    prompt: str | None
    response: str | None
    tokens_in: int
    tokens_out: int
    usd: float
    duration_s: float | None
    at: float
    cached: int | None


class Appended(TypedDict, total=False):
    """Rows that no later ones change."""

    attempts: Iterable[NewAttempt]
    events: Iterable[NewEvent]
    calls: Iterable[NewCall]
    invocations: Iterable[NewInvocation]
    decisions: Iterable[NewDecision]
    scores: Iterable[NewScore]
    settled: Iterable[Settlement]


class Recorded(TypedDict, total=False):
    """What an execution did, as rows."""

    born: Iterable[NewExecution]
    change: NewExecution | None
    values: Iterable[Value]
    files: Iterable[NewFile]
    checkpoints: Iterable[NewCheckpoint]
    node_run: NewNodeRun | None
    node_run_change: tuple[str, NewNodeRun] | None
    outcomes: Iterable[Outcome]
    held: Iterable[HeldCell]
    questions: Iterable[NewQuestion]
    metrics: Iterable[NewMetric]
    appended: Appended
