"""Rows of questions, rollbacks, budgets and alerts."""

from __future__ import annotations

from typing import Literal

from wtb.core.classes.frozen import frozen
from wtb.core.questions import Kind
from wtb.core.values import Json
from wtb.store.rows.record import Record
from wtb.store.tables.control import BudgetRow, QuestionRow


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


@frozen(slots=True)
class SameQuestion:
    """An open question among those that ask the same. Operations return it.

    executions: how many wait for its answer.
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


class ListedBudget(BudgetRow):
    """A budget of a list. reserved: by node runs under way. name: that of its session or sweep."""

    reserved: float
    name: str | None
