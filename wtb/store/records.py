"""Rows of questions, rollbacks, budgets and alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypedDict

from wtb.core.documents.shared_types import RunStatus, SweepStatus
from wtb.core.failures import StoredFailure
from wtb.core.frozen import frozen
from wtb.core.questions import Kind
from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.core.values import Json
from wtb.store.tables.column_types import Record
from wtb.store.tables.control import BudgetRow, QuestionRow
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.node_runs import NodeRunRow
from wtb.store.tables.results import CellRow
from wtb.store.tables.sweeps import RunnerRow, SweepRow

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.comparison import NoiseFloorDocument


class ListedQuestion(QuestionRow):
    """A question of a list.

    Attributes:
        sweep: The name of its sweep.
        workflow: The name of its workflow.
        case: The id of the first case that waits for it.
        executions: How many executions wait or waited for its answer.
    """

    sweep: str
    sweep_kind: Literal["sweep", "single"]
    queued: bool
    workflow: str
    case: str | None
    executions: int


@frozen(slots=True)
class SameQuestion:
    """An open question in a group of equal ones. Operations return it.

    `executions` is the number of executions that wait for its answer.
    """

    id: str
    kind: Kind
    node: str
    question: str
    options: list[str] | None
    status: str
    sweep_id: str
    executions: int


class GroupedQuestions(Record):
    """Equal open questions at the same node of a sweep.

    Attributes:
        id: The id of the first one.
        questions: How many there are.
        cases: The number of their cases.
        case: The id of the first of these cases; `case_number` is its number.
        asked_at: When the first question was asked.
        expires_at: When the timeout of the first question ends.
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


class AlertRow(Record):
    """An alert that is being sent, with its event; `tries` includes this one."""

    event_id: int
    execution_id: str | None
    kind: str
    severity: str
    at: float
    data: dict[str, Json]
    target: int
    tries: int


class UndeliveredAlert(Record):
    """An alert that could not be sent so far, with its error."""

    event_id: int
    target: int
    tries: int
    error: str


class ListedBudget(BudgetRow):
    """A budget of a list, with the amount that running node runs have reserved, and the name of its session or
    sweep.
    """

    reserved: float
    name: str | None


class OpenHead(ExecutionRow):
    """An execution that has begun and that nobody runs.

    Attributes:
        state: The digests of the values at its head, by key.
    """

    state: Mapping[str, str]


class OfExecution(Protocol):
    """The attributes that identify an execution and its cells."""

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
    """An execution that was reclaimed from a runner whose lease ran out.

    Attributes:
        owner_id: The runner.
        losses: How often its lease ran out in a node, including this time.
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


class Mark(Record):
    """A checkpoint without its state, as trees and rollbacks need it."""

    id: str
    parent_id: str | None
    execution_id: str
    position: StoredPosition
    writers: list[list[str]]
    trigger: Trigger
    name: str | None
    inside: StoredInside | None
    created_at: float


class AskingNodeRun(NodeRunRow):
    """A node run with the failure of its last attempt."""

    failure: StoredFailure | None


class NodeRunUnderWay(NodeRunRow):
    """A node run that has not ended; `for_s` is the number of seconds since it began."""

    for_s: float


class StalledRow(Record):
    """An execution in which a running node has reported nothing for too long, since a time in seconds since the
    epoch.
    """

    id: str
    case: str
    since: float


class ListedCell(CellRow):
    """A cell of a list, with its case's id, and the head of its execution."""

    case: str
    head_id: str | None


class FoundCell(Record):
    """A cell that a search found."""

    combination: int
    repeat: int
    status: str
    execution_id: str | None
    case: str


class StoredNights(TypedDict):
    """The nights of a baseline: the sweep of each, whether it was worse, and whether it was accepted.

    Attributes:
        repeats: The sweeps by which the noise of the reference was measured.
        nights: The nights.
        count: The number of all nights, including those left out.
    """

    repeats: list[str]
    nights: list[tuple[str, bool, bool]]
    count: int


class ListedBaseline(Record):
    """A baseline with the name, status and end of its sweep."""

    name: str
    session: str
    set_at: float
    sweep_id: str
    noise_floor: NoiseFloorDocument | None
    reference_id: str | None
    nights: StoredNights | None
    sweep: str
    status: SweepStatus
    finished_at: float | None


class ListedSweep(SweepRow):
    """A sweep of a list.

    Attributes:
        workflow: The name of its workflow.
        version: The version of its workflow.
        metadata: The metadata of its workflow, if any.
        shown_status: Its status; for a single execution, that of the execution.
        execution: The id of a single execution, beside `execution_reason` and `failure`; None for a sweep.
        counts: The numbers of its cells by status.
    """

    workflow: str
    version: str
    metadata: dict[str, Json] | None
    shown_status: RunStatus
    execution: str | None
    execution_reason: str | None
    failure: StoredFailure | None
    counts: Mapping[str, int]


class EarlierSweep(SweepRow):
    """A sweep of a series.

    Attributes:
        fire_at: When its schedule was due, if a schedule started it.
        verdict: The verdict of its fire, if it has one.
        case_count: How many cases it has.
    """

    fire_at: float | None
    verdict: str | None
    case_count: int


class OpenSweep(SweepRow):
    """A sweep that workers run or will run.

    Attributes:
        unfinished: Whether any of its executions is unfinished.
        running_s: The seconds for which it has run, if it is running.
    """

    unfinished: bool
    running_s: float | None


class BehindSweep(SweepRow):
    """A sweep with events that are still to be exported.

    Attributes:
        transaction: With `event`, the position in its log up to which all events were sent.
        event: The id of the last event that was sent.
    """

    transaction: int
    event: int


class ListeningSweep(Record):
    """A sweep with targets for its events."""

    id: str
    name: str
    notify: Sequence[Target]


class OwnerRow(RunnerRow):
    """A runner that runs a sweep or has claimed executions of it.

    Attributes:
        expired: Whether all its leases have run out.
        sweep: One of the sweeps.
    """

    expired: bool
    sweep: str


class WorkerRow(RunnerRow):
    """A worker with a recent heartbeat, `seen_s` seconds ago, and the number of its busy slots."""

    worker: str
    version: str
    clock_s: float
    busy: int
    seen_s: float


class RunnerOfSession(Record):
    """A runner, and a session of which it uses something."""

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float
    session_id: str


class MemoryRow(RunnerOfSession):
    """The memory that the node processes of a runner use for a session, in bytes."""

    used: int
    largest: int


class SlotHolder(RunnerOfSession):
    """A runner that holds slots of a session."""

    slots: int
