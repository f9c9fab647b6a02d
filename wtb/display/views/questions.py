"""Questions to people as documents, without anything that would show the variants behind them."""

from __future__ import annotations

from typing import Any, cast

from wtb.core.documents.questions import GivenAnswer, QuestionDocument, QuestionGroup, SweepOfQuestion
from wtb.core.documents.shared_types import ApprovalMode
from wtb.core.questions import Mode, mode_of_question
from wtb.core.serialization.plain_json import iso, readable
from wtb.core.tree.checkpoints import visible_state
from wtb.store.database import Database
from wtb.store.read.queries import line, load_values
from wtb.store.records import GroupedQuestions, ListedQuestion


def approval_mode(mode: Mode | None) -> ApprovalMode | None:
    """Return an approval mode as documents have it."""
    return cast("ApprovalMode | None", mode if mode is None or isinstance(mode, str) else dict(mode))


def group_document(row: GroupedQuestions) -> QuestionGroup:
    """Return questions that ask the same as a document; the row is one of `question_groups`."""
    return {
        "id": row.id,
        "questions": row.questions,
        "executions": int(row.executions),
        "kind": row.kind,
        "mode": approval_mode(mode_of_question(row.kind, row.node)),
        "question": row.question,
        "options": row.options,
        "node": row.node,
        "sweep": _sweep(row),
        "workflow": row.workflow,
        "case": row.case,
        "cases": row.cases,
        "asked_at": iso(row.asked_at),
        "expires_at": iso(row.expires_at),
    }


def question_document(row: ListedQuestion) -> QuestionDocument:
    """Return a question as a document; the row is one of `approval_rows`."""
    return {
        "id": row.id,
        "status": row.status,
        "kind": row.kind,
        "mode": approval_mode(mode_of_question(row.kind, row.node)),
        "question": row.question,
        "options": row.options or [],
        "default": None if row.default is None else row.default["choice"],
        "node": row.node,
        "sweep": _sweep(row),
        "workflow": row.workflow,
        "case": row.case,
        "executions": row.executions,
        "asked_at": iso(row.asked_at),
        "expires_at": iso(row.expires_at),
        "answer": _answer(row),
    }


def _answer(row: ListedQuestion) -> GivenAnswer | None:
    reply = row.answer
    if reply is None or row.answered_at is None:
        return None
    return {
        "action": reply["action"],
        "choice": reply["choice"],
        "feedback": reply["feedback"],
        "value": readable_value(reply.get("value")),
        "set": sorted(reply["set"]),
        "by": row.answered_by,
        "at": iso(row.answered_at),
    }


def whole_question(database: Database, row: ListedQuestion) -> QuestionDocument:
    """Return a question with what there is to look at: for one about a step, the step's state."""
    return {**question_document(row), "context": _context(database, row)}


def readable_value(encoded: str | None) -> Any:
    """Return the value of an answer as plain JSON; None if it has none."""
    return None if encoded is None else readable(encoded.encode())


def _sweep(row: ListedQuestion | GroupedQuestions) -> SweepOfQuestion:
    return {"id": row.sweep_id, "name": row.sweep, "kind": row.sweep_kind}


def _context(database: Database, row: ListedQuestion) -> Any:
    """Return what there is to look at, as plain JSON; None if it is not kept any more."""
    if row.context is not None:
        return readable(row.context.encode())
    if row.kind not in ("before", "after"):
        return None
    checkpoints = line(database, row.checkpoint_id)
    if not checkpoints:
        return None
    state = visible_state(checkpoints[-1].state)
    # A question after a node is about what the node changed.
    if row.kind == "after":
        before = checkpoints[-2].state if len(checkpoints) > 1 else {}
        state = {name: key for name, key in state.items() if before.get(name) != key}
    stored = load_values(database, state.values())
    return {name: readable(stored[key].data) for name, key in state.items()}
