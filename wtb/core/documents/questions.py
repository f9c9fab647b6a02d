"""Decisions of people: the documents of `wtb approvals`, `answer`, `answer-all`, `rollback` and `breakpoint`."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from wtb.core.documents.shared_types import ApprovalMode


class SweepOfQuestion(TypedDict):
    """The sweep of a question."""

    id: str
    name: str
    kind: Literal["sweep", "single"]


class GivenAnswer(TypedDict):
    """The answer to a question, and the keys of the state that it set; `by` is null if the timeout was over."""

    action: Literal["approve", "reject", "modify", "expired"]
    choice: str | None
    feedback: str | None
    value: Any
    set: list[str]
    by: str | None
    at: str


class QuestionDocument(TypedDict):
    """A question, without anything that would reveal its variants; `context` is present if it is shown by itself."""

    id: str
    status: str
    kind: str
    mode: NotRequired[ApprovalMode | None]  # that asks; null if a node asks by itself
    question: str
    options: list[str]
    default: str | None
    node: str
    sweep: SweepOfQuestion
    workflow: str | None
    case: str | None
    executions: int  # that wait
    asked_at: str
    expires_at: str | None
    answer: GivenAnswer | None
    context: NotRequired[Any]


class QuestionGroup(TypedDict):
    """Equal questions at the same node of a sweep; `id` is one of them."""

    id: str
    questions: int
    executions: int
    kind: str
    mode: NotRequired[ApprovalMode | None]
    question: str
    options: list[str] | None
    node: str
    sweep: SweepOfQuestion
    workflow: str | None
    case: str | None
    cases: int
    asked_at: str
    expires_at: str | None


class QuestionsDocument(TypedDict):
    """Questions, each by itself (`approvals`), and equal ones together (`groups`).

    `more` and `more_groups` are true if there are more of them than are listed.
    """

    approvals: NotRequired[list[QuestionDocument]]
    more: NotRequired[bool]
    groups: NotRequired[list[QuestionGroup]]
    more_groups: NotRequired[bool]


class AnswerDocument(TypedDict):
    """An answer, and the executions that continue with it."""

    approval: str
    sweep: str
    action: Literal["approve", "reject", "modify"]
    choice: str | None
    feedback: str | None
    value: Any
    set: list[str]
    by: str
    executions: list[str]
    queued: bool
    single: bool


class AnswerConflict(TypedDict):
    """A question that somebody else answered meanwhile."""

    approval: str
    because: str


class AnswersDocument(TypedDict):
    """Answers to many questions at once."""

    answers: list[AnswerDocument]
    conflicts: list[AnswerConflict]


class ToolCallDocument(TypedDict):
    """A call of a tool that a rollback concerns; `again` if it may have been reversed twice."""

    tool: str
    node: str
    arguments: Any
    again: NotRequired[bool]


class FailedToolCall(ToolCallDocument):
    """A call of a tool that could not be reversed, or repeated."""

    error: str


class CompensationDocument(TypedDict):
    """The results for tools that were called on the line that a rollback left."""

    undone: list[ToolCallDocument]
    redone: list[ToolCallDocument]
    irreversible: list[ToolCallDocument]
    failed: list[FailedToolCall]
    shared: list[ToolCallDocument]  # other executions stand on them


RollbackEnds = TypedDict("RollbackEnds", {"from": str, "to": str})


class RollbackDocument(CompensationDocument, RollbackEnds):
    """A rollback, or its undoing: the new head, and the part that was left."""

    execution: str
    head: str
    words: str
    next: list[str]
    was: str
    nodes: list[str]
    superseded: list[str]


class BreakpointsDocument(TypedDict):
    """The breakpoints of a sweep."""

    sweep: str
    breakpoints: list[str]
