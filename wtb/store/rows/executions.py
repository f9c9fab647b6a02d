"""Rows of executions, their checkpoints, node runs and calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

from wtb.core.documents.executions import Asked
from wtb.core.failures import StoredFailure
from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.store.rows.record import Record


class StoredProcess(TypedDict):
    """The identity of a process, as `ProcessIdentity` has it."""

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float


class UnfinishedRollback(TypedDict):
    """A rollback that has begun and has not come to its end.

    redoes: the rollback that it takes back. was: the execution's status before. holder: the process that is at it,
    until when it is believed to be.
    """

    to_id: str
    redoes: str | None
    was: str
    superseded: list[str]
    holder: StoredProcess | None
    until: float


class AskedRow(Asked):
    """What a person has asked of an execution; a rollback waits there, too, until it is done."""

    rollback: NotRequired[UnfinishedRollback]


class ExecutionRow(Record):
    """An execution as it stands in the database. Times are seconds since the epoch.

    Attributes:
        combinations: Numbers of the combinations that it stands for.
        choices: Node -> variant, of one that a person forked: it stands for no cell.
        asked: What a person wants of it while it runs: to, by, reason.
        deferred: Node -> its queue, of one that begins once others come to what differs.
        ended_transaction: Where the log has its end and those of its cells, up to `ended_event`.
        task_id: The task of workers in which it was published, or that runs or ran it.
        task_token: Its token when it was published; the publication is void once it has another one.
        published_at: When the message of its task was last sent.
        children: Into how many it forked, if its end in the log is that.
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
    losses: int
    queue: str | None
    choices: dict[str, str] | None
    edited: bool
    asked: AskedRow | None
    passed_id: str | None
    stalled_at: float | None
    deferred: dict[str, str] | None
    created_at: float
    finished_at: float | None
    ended_transaction: int | None
    ended_event: int | None
    task_id: str | None
    task_token: int | None
    published_at: float | None
    children: int | None


class OpenHead(ExecutionRow):
    """An execution that has begun and that nobody works on.

    Attributes:
        state: Key -> digest of its value, at its head.
    """

    state: Mapping[str, str]


class OfExecution(Protocol):
    """What says which execution it is, and which cells it stands for."""

    @property
    def id(self) -> str: ...
    @property
    def session_id(self) -> str: ...
    @property
    def sweep_id(self) -> str: ...
    @property
    def case_number(self) -> int: ...
    @property
    def repeat(self) -> int: ...
    @property
    def combinations(self) -> Sequence[int]: ...


class CellsOfExecution(NamedTuple):
    """An execution that is about to be inserted, or a part of its cells."""

    id: str
    session_id: str
    sweep_id: str
    case_number: int
    repeat: int
    combinations: Sequence[int]


class LostExecution(Record):
    """An execution that was taken back from a runner whose lease ran out.

    Attributes:
        owner_id: The runner.
        losses: How often its lease ran out in a node, this time included.
        task_id: The task in which it ran.
    """

    id: str
    session_id: str
    sweep_id: str
    owner_id: str
    losses: int
    case_number: int
    repeat: int
    combinations: list[int]
    task_id: str | None


class CheckpointRow(Record):
    """A checkpoint.

    Attributes:
        state: Key -> digest of its value.
        writers: (node, variant, node run) of those whose writes it has.
        totals: Seconds, US dollars, tokens in and out and node runs of the line up to it.
        inside: Of one that was taken inside a node, what it keeps of the visit.
    """

    id: str
    sweep_id: str
    execution_id: str
    parent_id: str | None
    position: StoredPosition
    state: dict[str, str]
    writers: list[list[str]]
    workspace: str | None
    totals: list[Any]
    trigger: Trigger
    name: str | None
    inside: StoredInside | None
    pinned: bool
    created_at: float
    created_transaction: int | None
    created_event: int | None


class Mark(Record):
    """A checkpoint without its state, as trees and rollbacks are made from."""

    id: str
    parent_id: str | None
    execution_id: str
    position: StoredPosition
    writers: list[list[str]]
    trigger: Trigger
    name: str | None
    inside: StoredInside | None
    created_at: float


class DecisionRow(Record):
    """Why an execution went from a node to another one."""

    checkpoint_id: str
    number: int
    node: str
    to: str
    key: str | None
    why: str
    tried: list[list[Any]] | None


class NodeRunRow(Record):
    """A node run: a task under a variant, from a checkpoint.

    Attributes:
        attempts: How many it has had.
        cells: How many it was run for.
        writes: Key -> digest of what it wrote.
        begun_at: When its first attempt began, as long as that has no row of its own.
        lag_s: By how much the event loop was late on average while the accepted attempt ran, if that was measured.
    """

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
    lag_s: float | None


class AskingNodeRun(NodeRunRow):
    """A node run with how its last attempt ended."""

    failure: StoredFailure | None


class NodeRunUnderWay(NodeRunRow):
    """A node run that has not ended. for_s: seconds since it began."""

    for_s: float


class AttemptRow(Record):
    """An attempt of a node run."""

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


class CallRow(Record):
    """A call of a model or tool that an attempt recorded. prompt, response: typed JSON."""

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
    sweep_id: str | None
    logged_transaction: int | None
    logged_event: int | None


class StalledRow(Record):
    """An execution in which a running node has reported nothing for too long; since: seconds since the epoch."""

    id: str
    case: str
    since: float
