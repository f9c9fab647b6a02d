"""Rows as they are read: a frozen type for each thing that is stored.

The fields of a record are the columns of its table, in their order; what a query adds, comes after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, Protocol, TypedDict

from wtb.core.access.roles import Role
from wtb.core.documents.administration import ProjectRetention
from wtb.core.documents.common import CellStatus, SweepStatus
from wtb.core.documents.comparison import NoiseFloorDocument
from wtb.core.documents.costs import BudgetKind, BudgetScope
from wtb.core.documents.executions import Asked
from wtb.core.documents.workflows.publications import PublicationKind
from wtb.core.failures import StoredFailure
from wtb.core.questions import Kind
from wtb.core.scoring.measure import Better
from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.core.tree.stored_spec import StoredSpec
from wtb.core.values import Json

if TYPE_CHECKING:
    from wtb.config.webhooks import Target


@dataclass(frozen=True, slots=True)
class SweepRow:
    """A sweep as it stands in the database. Times are seconds since the epoch.

    Attributes:
        session: The name of its session.
        token: By which it was submitted; None for whoever has the database.
        spec: The sweep as it was submitted, and where from.
        fingerprints: Node -> variant -> code.
    """

    id: str
    session_id: str
    workflow_id: str
    name: str
    project: str
    token: str | None
    status: SweepStatus
    reason: str | None
    runner_id: str | None
    queued: bool
    running_since: float | None
    spec: StoredSpec
    fingerprints: dict[str, dict[str, str]]
    kind: Literal["sweep", "single"]
    breakpoints: Sequence[str] | None
    notify: Sequence[Target] | None
    cells: int
    priority: int
    pinned: bool
    collected_usd: float
    collected_node_runs: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    session: str


@dataclass(frozen=True, slots=True)
class ListedSweep(SweepRow):
    """A sweep of a list.

    Attributes:
        workflow: The name of its workflow.
        counts: Its cells by status.
    """

    workflow: str
    version: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EarlierSweep(SweepRow):
    """A sweep of a series.

    Attributes:
        fire_at: When its schedule was due, where one fired it.
        verdict: Of its fire, once it has one.
        case_count: How many cases it has.
    """

    fire_at: float | None
    verdict: str | None
    case_count: int


@dataclass(frozen=True, slots=True)
class OpenSweep(SweepRow):
    """A sweep that workers run or will run.

    Attributes:
        unfinished: Whether any of its executions is.
        running_s: For how many seconds it has run, where it runs.
    """

    unfinished: bool
    running_s: float | None


@dataclass(frozen=True, slots=True)
class BehindSweep(SweepRow):
    """A sweep of which something is still to be sent.

    Attributes:
        transaction: Up to where of its log everything was sent, with `event`.
    """

    transaction: int
    event: int


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


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """An execution as it stands in the database. Times are seconds since the epoch.

    Attributes:
        combinations: Numbers of the combinations that it stands for.
        choices: Node -> variant, of one that a person forked: it stands for no cell.
        asked: What a person wants of it while it runs: to, by, reason.
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
    created_at: float
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class OpenHead(ExecutionRow):
    """An execution that has begun and that nobody works on.

    Attributes:
        state: Key -> digest of its value, at its head.
    """

    state: Mapping[str, str]


class Subject(TypedDict):
    """What an event is about, as columns of `events`."""

    session_id: str | None
    sweep_id: str
    execution_id: str | None


class NewEvent(Subject):
    """An event that is about to be inserted. data: what readers get, as JSON; its kind decides what it holds."""

    kind: str
    severity: str
    at: float
    data: dict[str, Json]


class EventRow(NewEvent):
    """An event of the log: one that was inserted, or one that another row says."""

    id: int
    transaction: int


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


@dataclass(frozen=True, slots=True)
class LostExecution:
    """An execution that was taken back from a runner whose lease ran out.

    Attributes:
        owner_id: The runner.
        losses: How often its lease ran out in a node, this time included.
    """

    id: str
    session_id: str
    sweep_id: str
    owner_id: str
    losses: int
    case_number: int
    repeat: int
    combinations: list[int]


@dataclass(frozen=True, slots=True)
class CaseRow:
    """A case of a sweep.

    Attributes:
        input: Key of the state -> digest of its value.
        expected: The digest of what is expected.
        workspace: The digest of the snapshot that its runs start with.
        cluster: What it shares with other cases, by which intervals are computed.
        erased_at: When somebody erased it; nothing but its id and number is left of it then.
        erased_by: Who did.
    """

    sweep_id: str
    number: int
    id: str
    input: dict[str, str]
    expected: str | None
    tags: list[str]
    workspace: str | None
    cluster: str | None
    erased_at: float | None
    erased_by: str | None


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell as it stands: what its execution has spent and how it failed is known at its end."""

    sweep_id: str
    case_number: int
    repeat: int
    combination: int
    status: CellStatus
    execution_id: str | None
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    node_runs: int | None
    failure: StoredFailure | None
    edited: bool
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ListedCell(CellRow):
    """A cell of a list: with its case's id, and the checkpoint at which its execution stands."""

    case: str
    head_id: str | None


@dataclass(frozen=True, slots=True)
class FoundCell:
    """A cell that somebody looked for."""

    combination: int
    repeat: int
    status: str
    execution_id: str | None
    case: str


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A score of a cell, or why it has none."""

    sweep_id: str
    metric: str
    case_number: int
    repeat: int
    combination: int
    value: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A metric of a sweep, as its evaluator declared it."""

    sweep_id: str
    name: str
    number: int
    better: Better
    declared: bool
    by_median: bool
    low: float | None
    high: float | None
    on_failure: str | None


@dataclass(frozen=True, slots=True)
class CheckpointRow:
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


@dataclass(frozen=True, slots=True)
class Mark:
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


@dataclass(frozen=True, slots=True)
class RollbackRow:
    """A rollback of an execution: from which head to which checkpoint, what it left, and who wanted it."""

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
    at: float
    redone_at: float | None


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """Why an execution went from a node to another one."""

    checkpoint_id: str
    number: int
    node: str
    to: str
    key: str | None
    why: str


@dataclass(frozen=True, slots=True)
class NodeRunRow:
    """A node run: a task under a variant, from a checkpoint.

    Attributes:
        attempts: How many it has had.
        cells: How many it was run for.
        writes: Key -> digest of what it wrote.
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


@dataclass(frozen=True, slots=True)
class AskingNodeRun(NodeRunRow):
    """A node run with how its last attempt ended."""

    failure: StoredFailure | None


@dataclass(frozen=True, slots=True)
class NodeRunUnderWay(NodeRunRow):
    """A node run that has not ended. for_s: seconds since it began."""

    for_s: float


@dataclass(frozen=True, slots=True)
class AttemptRow:
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


@dataclass(frozen=True, slots=True)
class CallRow:
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


@dataclass(frozen=True, slots=True)
class InvocationRow:
    """A call of a declared tool. arguments, result: typed JSON."""

    node_run_id: str
    attempt: int
    number: int
    tool: str
    arguments: str
    result: str | None
    status: str
    error: str | None
    at: float
    duration_s: float
    undone_at: float | None


class StoredAnswer(TypedDict):
    """The answer to a question as it is stored.

    value: typed JSON. set: key of the state -> digest of the value that it was given. heads: the checkpoints that this
    made.
    """

    action: Literal["approve", "reject", "modify", "expired"]
    choice: str | None
    feedback: str | None
    value: NotRequired[str | None]
    set: Mapping[str, str]
    heads: list[str]


class StoredDefault(TypedDict):
    """What counts as the answer to a question when its time is up."""

    choice: str | None


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """A question to a person. context: typed JSON."""

    id: str
    session_id: str
    sweep_id: str
    checkpoint_id: str
    key: str
    kind: Kind
    node: str
    number: int
    question: str
    options: list[str] | None
    context: str | None
    default: StoredDefault | None
    status: str
    answer: StoredAnswer | None
    answered_by: str | None
    asked_at: float
    expires_at: float | None
    answered_at: float | None


@dataclass(frozen=True, slots=True)
class ListedQuestion(QuestionRow):
    """A question of a list.

    Attributes:
        sweep: The name of its sweep.
        workflow: The name of its workflow.
        case: The id of the first case that asks.
        executions: How many wait or waited for its answer.
    """

    sweep: str
    sweep_kind: Literal["sweep", "single"]
    queued: bool
    workflow: str
    case: str | None
    executions: int


@dataclass(frozen=True, slots=True)
class SameQuestion:
    """An open question among those that ask the same. executions: how many wait for its answer."""

    id: str
    kind: Kind
    node: str
    question: str
    options: list[str] | None
    status: str
    sweep_id: str
    executions: int


@dataclass(frozen=True, slots=True)
class GroupedQuestions:
    """Open questions that ask the same at the same node of a sweep.

    Attributes:
        id: The first one's.
        questions: How many there are.
        cases: Of how many cases they are; case, case_number: the first of them.
        asked_at: When the first one was asked.
        expires_at: When the time of the first one is up.
    """

    sweep_id: str
    node: str
    kind: Kind
    question: str
    options: list[str] | None
    id: str
    questions: int
    executions: int
    cases: int
    case_number: int
    asked_at: float
    expires_at: float | None
    sweep: str
    sweep_kind: Literal["sweep", "single"]
    workflow: str
    case: str | None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session. deleted_usd: what sweeps have spent that were deleted since."""

    id: str
    name: str
    quota: Mapping[str, float] | None
    project: str
    archived_at: float | None
    deleted_usd: float
    created_at: float


@dataclass(frozen=True, slots=True)
class ListedBaseline:
    """A baseline with its sweep, whose name, status and end it has."""

    name: str
    session: str
    set_at: float
    sweep_id: str
    noise_floor: NoiseFloorDocument | None
    sweep: str
    status: SweepStatus
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ListeningSweep:
    """A sweep that tells somebody of its events: notify, where to send which."""

    id: str
    name: str
    notify: Sequence[Target]


@dataclass(frozen=True, slots=True)
class TallyRow:
    """The scores of a combination by a metric.

    Attributes:
        n: How many cells have one.
        total: The sum of them.
    """

    sweep_id: str
    metric: str
    combination: int
    n: int
    total: float


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert that is being sent, with its event. tries: how often that was tried, this time included."""

    event_id: int
    execution_id: str | None
    kind: str
    severity: str
    at: float
    data: dict[str, Json]
    target: int
    tries: int


@dataclass(frozen=True, slots=True)
class UndeliveredAlert:
    """An alert that could not be sent so far, and why."""

    event_id: int
    target: int
    tries: int
    error: str


@dataclass(frozen=True, slots=True)
class StalledRow:
    """An execution in which a running node has reported nothing for too long; since: seconds since the epoch."""

    id: str
    case: str
    since: float


@dataclass(frozen=True, slots=True)
class RunnerRow:
    """A process that runs sweeps, with its heartbeat.

    Attributes:
        session_id: Whose slots it took when it started; workers take those of the sweeps that they run.
        worker: The name of the worker that it is, and queues: those that it takes from.
        clock_s: How far its clock is ahead of the database's.
    """

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float
    created_at: float
    session_id: str | None
    slots: int
    seen_at: float | None
    ended_at: float | None
    worker: str | None
    pool: str | None
    queues: list[str | None] | None
    version: str | None
    clock_s: float | None


@dataclass(frozen=True, slots=True)
class OwnerRow(RunnerRow):
    """A runner that runs a sweep or has claimed executions of it.

    Attributes:
        expired: Whether all its leases have run out.
        sweep: One of the sweeps.
    """

    expired: bool
    sweep: str


@dataclass(frozen=True, slots=True)
class WorkerRow(RunnerRow):
    """A worker that was seen lately. busy: how many of its slots are; seen_s: seconds since its heartbeat."""

    worker: str
    version: str
    clock_s: float
    busy: int
    seen_s: float


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """A runner that holds slots of a session."""

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float
    session_id: str
    slots: int


@dataclass(frozen=True, slots=True)
class ProjectRow:
    """A project. retention: of its finished sweeps, where the policy does not hold; sessions, sweeps: how many."""

    name: str
    created_at: float
    created_by: str
    retention: ProjectRetention | None
    sessions: int
    sweeps: int


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token, by its digest.

    Attributes:
        scopes: What its holder may do, by the names of `Permission`.
        project: Where; None for everywhere.
        user: Whose roles bound it; None for nobody's.
        used_at: When it was last used, to the minute.
    """

    id: str
    name: str
    digest: str
    scopes: Sequence[str]
    created_at: float
    created_by: str
    expires_at: float | None
    used_at: float | None
    revoked_at: float | None
    project: str | None
    user: str | None


@dataclass(frozen=True, slots=True)
class UserRow:
    """Somebody who may be given roles. teams: the names of those that they are in."""

    name: str
    created_at: float
    created_by: str
    teams: Sequence[str]


@dataclass(frozen=True, slots=True)
class TeamRow:
    """Users that may be given roles together. members: their names."""

    name: str
    created_at: float
    created_by: str
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class AccessRow:
    """A role of a user or of a team in a project; None stands for all projects."""

    project: str | None
    user: str | None
    team: str | None
    role: Role
    created_at: float
    created_by: str


@dataclass(frozen=True, slots=True)
class IdempotencyKeyRow:
    """A key of a request that changed something.

    Attributes:
        digest: Of who asks and the key.
        request: Digest of what was asked for.
        status: Of the answer; None until there is one.
        body: Of the answer, JSON.
        projects: Of which its answer may tell, as `wtb.projects` says them.
    """

    digest: str
    request: str
    created_at: float
    status: int | None
    location: str | None
    body: str | None
    projects: str


@dataclass(frozen=True, slots=True)
class OperationRow:
    """An operation that takes longer than a request.

    Attributes:
        name: In the registry.
        by: Who asked for it.
        projects: Of which it may tell, as `projects_setting` says them.
        key: Digest of who asked, of their Idempotency-Key and of what they asked.
        lease_until: Until when its server lives, unless it says so again.
        status: Of the answer; None until there is one.
        body: Of the answer, JSON.
    """

    id: str
    name: str
    by: str
    projects: str
    key: str | None
    began_at: float
    lease_until: float
    ended_at: float | None
    status: int | None
    location: str | None
    body: str | None


@dataclass(frozen=True, slots=True)
class UploadRow:
    """A file that is sent before the sweep that takes its cases from it.

    Attributes:
        digest: SHA-256 that its content has to have.
        bytes: Of the parts that have come.
        by: Who sent it.
        completed_at: When all of it had come.
    """

    id: str
    project: str
    digest: str
    bytes: int
    by: str
    created_at: float
    completed_at: float | None


@dataclass(frozen=True, slots=True)
class ExporterRow:
    """A collector that is sent traces.

    Attributes:
        began_at: Sweeps that had ended then are not sent by themselves.
        owner_id: The process that sends.
        spans: How many were sent, those that were sent again included.
        rejected: How many of them it refused.
        sent_at: When it last took some.
        error: Why it takes none.
    """

    endpoint: str
    began_at: float
    owner_id: str | None
    lease_until: float | None
    spans: int
    rejected: int
    sent_at: float | None
    failing_since: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class SignInRow:
    """A browser that somebody signed in from, by the digest of what it sends.

    Attributes:
        kind: Whose it is: the `operator`'s, of whoever has a `token`, or of whom a `provider` knows.
        source: Digest of the token by which they signed in, or of whom the provider knows.
        name: What events call whom a provider knows.
        scopes: What they may do, by the names of `Permission`.
        address: From where; None where that is not known.
        used_at: When it was last used, to the minute.
    """

    id: str
    digest: str
    kind: str
    source: str
    name: str | None
    scopes: Sequence[str] | None
    address: str | None
    created_at: float
    used_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class PublicationRow:
    """What workers publish of a workflow or an evaluator.

    Attributes:
        description: As JSON; None where no worker could import it.
        error: Why a worker cannot import it.
    """

    kind: PublicationKind
    name: str
    path: str
    digest: str | None
    description: str | None
    published_at: float | None
    published_by: str | None
    error: str | None
    failed_at: float | None
    failed_by: str | None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row of the audit log.

    Attributes:
        call: Of the row that an operation began to change something with, and of the one of its end.
        arguments: JSON; None in the second row of a call.
        outcome: None where it has begun to change something.
        result: JSON, of what names it.
    """

    number: int
    at: float
    call: str
    by: str
    via: str
    address: str | None
    token: str | None
    operation: str
    arguments: str | None
    outcome: str | None
    result: str | None
    error: str | None
    hash: str


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget: of a session, project, token or sweep (`scope`, `key`), or of a node of a sweep.

    Attributes:
        kind: usd, tokens or node_runs.
        warned: The share of it at which somebody was told last.
    """

    scope: BudgetScope
    key: str
    node: str
    kind: BudgetKind
    most: float
    spent: float
    warned: float


@dataclass(frozen=True, slots=True)
class ListedBudget(BudgetRow):
    """A budget of a list. reserved: by node runs under way. name: that of its session or sweep."""

    reserved: float
    name: str | None
