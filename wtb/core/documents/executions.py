"""Executions: the documents of `wtb show EXECUTION`, `wtb start` and `wtb status EXECUTION`."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.outputs import CellComment
from wtb.core.documents.shared_types import ApprovalMode, CellStatus, Combination, Liveness, RouteDocument
from wtb.core.documents.sweeps import SweepName, SweepOfExecution
from wtb.core.values import Json


class ExecutionHeading(TypedDict):
    """The identity of an execution: its cells, its place in the tree, and how it ended."""

    id: str
    sweep: SweepOfExecution
    status: str
    reason: str | None
    origin: str
    parent: str | None
    children: list[str]
    case: str
    repeat: int
    combinations: list[Combination]
    edited: bool
    head: str | None
    error: str | None
    trace: str
    created_at: str
    finished_at: str | None
    task: NotRequired[str]  # the task of workers that ran it last, as Flower shows it
    metadata: NotRequired[dict[str, Json]]


class AddedRowDocument(TypedDict):
    """A row that was added to a sweep."""

    sweep: str
    name: str
    combination: int  # its number
    choices: Combination
    base: Combination  # the row that it was made from
    suggested_by: str  # case
    cells: int
    executions: list[str]  # those that are to run
    failed: int  # cells that failed before they came to what differs
    node_runs: int  # about how many, as many as the other row took
    queued: bool
    status: str  # of the sweep
    problem: str | None  # why workers could not be reached


class CheckpointHeading(TypedDict):
    """A checkpoint that is shown by itself; its status is `checkpoint`."""

    id: str
    sweep: SweepName
    status: str


class TotalsDocument(TypedDict):
    """The amounts that led to a checkpoint, as if alone. `elapsed_s` is the seconds in nodes."""

    elapsed_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    node_runs: int


class TaskDocument(TypedDict):
    """The task of a node run, and the number of tasks of its node in the step; empty if it has only one."""

    task: NotRequired[str]
    tasks: NotRequired[int]


class NodeRunDocument(TaskDocument):
    """A node run. `lag_s` is by how much its event loop was late on average; null if that was not measured."""

    node_run: str
    node: str
    variant: str
    visit: int
    status: str
    attempts: int
    cells: int  # that share it
    duration_s: float | None
    lag_s: NotRequired[float | None]
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    started_at: str | None


class PathStep(NodeRunDocument):
    """A node run with its step; once it has ended, with the checkpoint that it wrote and the one before that."""

    step: int
    checkpoint: NotRequired[str]
    before: NotRequired[str | None]


class AttemptDocument(TypedDict):
    """An attempt of a node run, with its output (null if that was removed)."""

    number: int
    status: str
    started_at: str | None
    duration_s: float | None
    usd: float | None
    error: str | None
    trace: str
    stdout: str | None
    stderr: str | None


class CallDocument(TypedDict):
    """A call of a model."""

    attempt: int
    model: str | None
    tool: str | None
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    duration_s: float | None
    prompt: Any
    response: Any
    at: str | None


class InvocationDocument(TypedDict):
    """A call of a tool, and when it was reversed."""

    attempt: int
    number: int
    tool: str
    status: str
    error: str | None
    duration_s: float | None
    arguments: Any
    result: Any
    at: str | None
    undone_at: str | None


class ShownStep(PathStep):
    """A node run with its writes and its attempts; calls are included with `--calls`.

    Attributes:
        decisions: Why the execution went on to the next nodes.
        name: The name of the checkpoint that it wrote.
        note: The note of that checkpoint.
    """

    writes: dict[str, Json]
    decisions: NotRequired[list[RouteDocument]]
    name: NotRequired[str]
    note: NotRequired[str]
    tried: list[AttemptDocument]
    calls: NotRequired[list[CallDocument]]
    invocations: NotRequired[list[InvocationDocument]]


class ExecutionCell(TypedDict):
    """A cell that an execution stands for. A score that failed is its error."""

    combination: Combination
    status: CellStatus
    scores: dict[str, float | str | None]
    reasons: NotRequired[dict[str, str]]  # of the scores that have one
    comments: NotRequired[list[CellComment]]  # the oldest first; left out if there are none
    error: str | None


class LeftLine(TypedDict):
    """A line that a rollback left."""

    from_id: str
    to_id: str
    head_id: str | None
    status: str
    nodes: list[str]
    superseded: list[str]
    by: str
    reason: str | None
    at: str
    redone_at: str | None


EdgeOutline = TypedDict("EdgeOutline", {"from": str, "to": str, "label": str | None})


class GraphOutline(TypedDict):
    """A workflow's nodes and edges by name; an edge to the end leads to `END`. `label` is the condition, if it has
    one.
    """

    entries: list[str]
    nodes: list[str]
    edges: list[EdgeOutline]


class ExecutionDocument(TypedDict):
    """An execution with its cells, path, attempts and state, and the lines that rollbacks left, the last one first."""

    execution: ExecutionHeading
    left: NotRequired[list[LeftLine]]
    cells: list[ExecutionCell]
    scores: dict[str, float | str | None]  # of a fork, which owns no cell
    path: list[ShownStep]
    totals: TotalsDocument | None
    next: list[str]
    state: dict[str, Json]
    graph: NotRequired[GraphOutline]


class Spent(TypedDict):
    """The amounts that all attempts have spent so far, including running and failed ones; `usd` is in US dollars."""

    usd: float
    tokens_in: int
    tokens_out: int


class StandingExecution(TypedDict):
    """An execution with its status, the time since when it has it, and the person who set it."""

    id: str
    sweep: SweepOfExecution
    status: str
    reason: str | None
    since: str | None
    by: str | None
    case: str
    repeat: int
    combinations: list[Combination]
    choices: Combination | None  # of a fork
    edited: bool
    stalled_at: str | None


class RunningNode(TaskDocument):
    """A running node run, with the seconds since its start; `printed` is the end of its attempt's output."""

    node: str
    variant: str
    attempt: int
    started_at: str | None
    for_s: float
    printed: NotRequired[str]


class ExecutionOwner(TypedDict):
    """The process that holds an execution."""

    host: str
    pid: int
    worker: str | None
    state: Liveness


class OpenQuestion(TypedDict):
    """A question that an execution waits for."""

    id: str
    kind: NotRequired[str]
    mode: NotRequired[ApprovalMode | None]  # that asks; null if a node asks by itself
    question: str
    options: NotRequired[list[str]]
    node: str
    asked_at: str
    expires_at: str | None


class FailureDocument(TypedDict):
    """The failure of an execution: its kind, the error, and the node that raised it."""

    kind: str
    error: str
    message: str
    node: str | None


class OutcomeDocument(TypedDict):
    """The end or the present status of an execution: the answer to the request that started it, and the end of its
    stream.

    `result` has the writes of its last step; it is empty unless the execution is completed.
    """

    execution: str
    sweep: str
    status: str
    reason: str | None
    result: dict[str, Json] | None
    state: dict[str, Json]
    failure: FailureDocument | None
    questions: list[OpenQuestion]


class Asked(TypedDict):
    """A request of a person for a running execution."""

    to: str
    by: str
    reason: str


class StandingDocument(TypedDict):
    """The status of an execution: its position, its holder, what holds it up, and what can be done."""

    execution: StandingExecution
    checkpoint: str | None
    step: int | None
    next: list[str]
    nodes: list[RunningNode]
    owner: ExecutionOwner | None
    asked: Asked | None  # what a person has asked of it, as long as it runs
    questions: list[OpenQuestion]
    approval: NotRequired[list[ApprovalMode]]  # when people are asked without a node asking
    breakpoints: list[str]
    cells: dict[str, int]  # status -> cells
    spent: NotRequired[Spent]
    commands: list[str]
