"""Rows of questions, rollbacks, budgets and alerts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

from wtb.core.documents.costs import BudgetKind, BudgetScope
from wtb.core.questions import Kind
from wtb.core.values import Json
from wtb.store.rows.record import Record


class RollbackRow(Record):
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


class ScoringRow(Record):
    """What workers are asked to score again. evaluators: as in a sweep file. token: of the claim that it is under."""

    id: str
    sweep_id: str
    evaluators: list[dict[str, Json]]
    queue: str
    by: str
    asked_at: float
    status: str
    owner_id: str | None
    lease_until: float | None
    token: int
    scores: int
    unjudged: int
    reason: str | None
    ended_at: float | None
    published_at: float | None


class InvocationRow(Record):
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
    version: str | None
    sweep_id: str | None
    logged_transaction: int | None
    logged_event: int | None


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


class QuestionRow(Record):
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


class SameQuestion(Record):
    """An open question among those that ask the same. executions: how many wait for its answer."""

    id: str
    kind: Kind
    node: str
    question: str
    options: list[str] | None
    status: str
    sweep_id: str
    executions: int


class GroupedQuestions(Record):
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


class AlertRow(Record):
    """An alert that is being sent, with its event. tries: how often that was tried, this time included."""

    event_id: int
    execution_id: str | None
    kind: str
    severity: str
    at: float
    data: dict[str, Json]
    target: int
    tries: int


class UndeliveredAlert(Record):
    """An alert that could not be sent so far, and why."""

    event_id: int
    target: int
    tries: int
    error: str


class ExporterRow(Record):
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


class BudgetRow(Record):
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


class ListedBudget(BudgetRow):
    """A budget of a list. reserved: by node runs under way. name: that of its session or sweep."""

    reserved: float
    name: str | None
