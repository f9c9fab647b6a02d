"""Questions to people in the database: asked within a flush, answered once. `questions` reads them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError
from wtb.core.questions import Answer
from wtb.core.serialization.plain_json import iso, storable
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.values import Json, Value
from wtb.store.bulk import fetch_record, fetch_records, insert_missing
from wtb.store.cell_status import end_waiting
from wtb.store.control.edits import edited_head
from wtb.store.database import Database
from wtb.store.events import add_event, subject
from wtb.store.read.queries import as_bytes
from wtb.store.tables.column_types import is_ahead
from wtb.store.tables.control import NewQuestion, QuestionRow, StoredAnswer
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import approvals, awaiting, executions, now, values
from wtb.store.tables.sweeps import Subject


def ask(connection: sa.Connection, asked: Sequence[tuple[str, NewQuestion]]) -> None:
    """Note what executions wait for: (execution, row of `approvals`). Who asks what was asked here before shares it.

    An execution whose question has been answered meanwhile is pending at once.
    """
    for execution, given in sorted(asked, key=lambda one: (one[1]["checkpoint_id"], one[1]["key"])):
        row = {name: value for name, value in given.items() if name != "timeout"}
        insert_missing(connection, approvals, [row])
        query = sa.select(approvals).where(
            approvals.c.checkpoint_id == given["checkpoint_id"], approvals.c.key == given["key"]
        )
        (question,) = fetch_records(connection, QuestionRow, query.with_for_update())
        insert_missing(connection, awaiting, [{"approval_id": question.id, "execution_id": execution}])
        query = sa.select(executions).where(executions.c.id == execution, executions.c.status == "waiting")
        waits = fetch_record(connection, ExecutionRow, query)
        if waits is None:
            continue
        if question.id == given["id"] or question.status == "withdrawn" or _is_over(question, waits.created_at):
            _open(connection, question, given["timeout"], execution)
        elif question.status != "open":
            _wake(connection, question, _answer_of(question), [waits])


def _is_over(found: QuestionRow, born: float) -> bool:
    """Whether a question was rejected before the execution existed: a retry asks again."""
    answer = found.answer
    return answer is not None and answer["action"] == "reject" and (found.answered_at or 0.0) < born


def _open(connection: sa.Connection, asked: QuestionRow, timeout: float | None, execution: str) -> None:
    """Ask a question again: its answer is removed, and its time starts anew."""
    connection.execute(
        approvals.update()
        .where(approvals.c.id == asked.id)
        .values(
            status="open",
            answer=sa.null(),
            answered_by=None,
            answered_at=None,
            asked_at=now(),
            expires_at=None if timeout is None else now() + timeout,
        )
    )
    data = {"approval": asked.id, "kind": asked.kind, "node": asked.node, "question": asked.question[:500]}
    add_event(connection, _about(asked, execution), "approval.asked", {**data, "timeout_s": timeout})


def _about(question: QuestionRow, execution: str | None) -> Subject:
    return subject(question.session_id, question.sweep_id, execution)


@frozen
class Given:
    """An accepted answer: the row of its question, and the executions that continue with it."""

    row: QuestionRow
    woken: Sequence[str]


def give(database: Database, id: str, answer: Answer, changes: Mapping[str, Value]) -> Given:
    """Answer an open question; all executions that wait for it alone are pending then.

    Args:
        database: The database.
        id: Of the question.
        answer: What a person answers: to approve, reject or modify.
        changes: Of the state of the executions, with `modify`.

    Returns:
        The question's row, and the executions that continue.

    Raises:
        ConflictError: If it is not open any more; it says who did what.
    """
    stored: StoredAnswer = {
        "action": answer.action,
        "choice": answer.choice,
        "feedback": answer.feedback,
        "value": answer.value,
        "set": {name: value.digest for name, value in changes.items()},
        "heads": [],
    }
    while True:
        with database.write() as connection:
            locked = _lock(connection, id)
            if locked is None:
                continue
            found, waiting = locked
            if found.status != "open":
                raise ConflictError(_answered(found))
            return Given(*_settle(connection, found, waiting, stored, answer.by, changes))


def expire(database: Database) -> int:
    """Answer questions whose time is up with their defaults. Returns how many."""
    _set_right(database)
    at = sa.select(now()).scalar_subquery()  # asked once, so that those which are due are found by the index
    due = sa.select(approvals.c.id).where(approvals.c.status == "open", approvals.c.expires_at <= at)
    ids = database.scalars(due)
    expired = 0
    for id in ids:
        with database.write() as connection:
            locked = _lock(connection, id)
            if locked is None or locked[0].status != "open":  # the next look finds it, or somebody was quicker
                continue
            found, waiting = locked
            default = found.default
            answer: StoredAnswer = {
                "action": "expired" if default is None else "approve",
                "choice": None if default is None else default["choice"],
                "feedback": None,
                "value": None,
                "set": {},
                "heads": [],
            }
            _settle(connection, found, waiting, answer, None, {})
            expired += 1
    return expired


def _set_right(database: Database) -> None:
    """Let the time of questions that were asked while the clock was ahead begin now."""
    at = sa.select(now()).scalar_subquery()
    misplaced = (approvals.c.status == "open", approvals.c.expires_at > at, is_ahead(approvals.c.asked_at))
    if ids := database.scalars(sa.select(approvals.c.id).where(*misplaced)):
        until = now() + (approvals.c.expires_at - approvals.c.asked_at)
        these = approvals.update().where(approvals.c.id.in_(ids), *misplaced)
        database.execute(these.values(asked_at=now(), expires_at=until))


def _lock(connection: sa.Connection, id: str) -> tuple[QuestionRow, list[ExecutionRow]] | None:
    """Lock a question and the executions that wait for it, or return None if more began to wait meanwhile."""
    # Executions before the question, as in a flush, so that the two never wait for each other in a circle.
    mine = sa.select(awaiting.c.execution_id).where(awaiting.c.approval_id == id)
    query = sa.select(executions).where(executions.c.id.in_(mine)).order_by(executions.c.id).with_for_update()
    rows = fetch_records(connection, ExecutionRow, query)
    (found,) = fetch_records(
        connection, QuestionRow, sa.select(approvals).where(approvals.c.id == id).with_for_update()
    )
    return (found, rows) if set(connection.scalars(mine)) == {row.id for row in rows} else None


def _settle(
    connection: sa.Connection,
    asked: QuestionRow,
    waiting: Sequence[ExecutionRow],
    answer: StoredAnswer,
    by: str | None,
    changes: Mapping[str, Value],
) -> tuple[QuestionRow, list[str]]:
    """Note an answer and wake who waited for it. Returns the question's row then, and the executions.

    by: None where its time was up.
    """
    status = "expired" if by is None else "answered"
    query = (
        approvals.update()
        .where(approvals.c.id == asked.id, approvals.c.status == "open")
        .values(status=status, answer=answer, answered_by=by, answered_at=now())
        .returning(approvals)
    )
    (asked,) = fetch_records(connection, QuestionRow, query)
    woken = _wake(connection, asked, answer, waiting, changes)
    value, answered_at = answer.get("value"), asked.answered_at or asked.asked_at
    data: dict[str, Json] = {
        "approval": asked.id,
        "kind": asked.kind,
        "node": asked.node,
        "by": by,
        "action": answer["action"],
        "choice": answer["choice"],
        "feedback": answer["feedback"],
        "value": value and storable(value, 500),
        "keys": [*sorted(answer["set"])],
        "latency_s": round(answered_at - asked.asked_at, 3),
        "executions": len(waiting),
        "woken": [*woken],
    }
    only = waiting[0].id if len(waiting) == 1 else None
    add_event(connection, _about(asked, only), f"approval.{status}", data)
    return asked, woken


def _wake(
    connection: sa.Connection,
    asked: QuestionRow,
    answer: StoredAnswer,
    waiting: Sequence[ExecutionRow],
    changes: Mapping[str, Value] | None = None,
) -> list[str]:
    """Make waiting executions pending with an answer, from a changed state if the answer has one. Returns their ids.

    One that somebody paused meanwhile stays paused; one that runs finds the answer when it asks.
    """
    there = [row for row in waiting if row.status in ("waiting", "paused", "pending")]
    if answer["set"]:
        changes = changes or _stored(connection, answer["set"])
        heads = list(answer["heads"])
        for row in there:
            if row.head_id == asked.checkpoint_id:
                heads.append(head := edited_head(connection, row, changes))
                if row.passed_id == row.head_id:  # what held it up there does not do so again
                    connection.execute(executions.update().where(executions.c.id == row.id).values(passed_id=head))
        answer = {**answer, "heads": heads}
        connection.execute(approvals.update().where(approvals.c.id == asked.id).values(answer=answer))
        withdraw(connection, [row.id for row in there])  # what else was asked of the state as it was
    reason = None
    if answer["action"] == "expired":
        reason = f"question {asked.id} expired at {iso(asked.answered_at)}: nobody answered, and no default"
    ids = [row.id for row in there if row.status == "waiting"]
    connection.execute(
        executions.update()
        .where(executions.c.id.in_(ids), executions.c.status == "waiting")
        .values(status="pending", reason=reason)
    )
    end_waiting(connection, [row for row in there if row.status == "waiting"])
    return ids


def _stored(connection: sa.Connection, digests: Mapping[str, str]) -> dict[str, Value]:
    rows = connection.execute(sa.select(values.c.digest, values.c.data).where(values.c.digest.in_(digests.values())))
    data = {digest: as_bytes(stored) for digest, stored in rows}
    return {name: Value(digest, data[digest]) for name, digest in digests.items()}


def _answered(asked: QuestionRow) -> str:
    """Why it cannot be answered, as the present state."""
    at = iso(asked.answered_at)
    if asked.status == "expired":
        came = "it has no default, so that its node fails" if asked.default is None else "its default counted"
        return f"question {asked.id} expired: it was not answered in time ({at}); {came}"
    if asked.status == "withdrawn":
        return f"question {asked.id} was withdrawn: nobody waits for its answer any more"
    answer = _answer_of(asked)
    chose = f" with {answer['choice']!r}" if answer["choice"] else ""
    feedback = f", saying {answer['feedback'][:200]!r}" if answer["feedback"] else ""
    given = answer.get("value")
    value = f", with the value {storable(given, 200)}" if given else ""
    did = {"approve": "approved", "reject": "rejected", "modify": "modified"}[answer["action"]]
    outcome = f"{asked.answered_by} {did} it{chose}{value}{feedback}"
    return f"question {asked.id} was answered already: {outcome} at {at}"


def _answer_of(asked: QuestionRow) -> StoredAnswer:
    assert asked.answer is not None, "a question that is neither open nor withdrawn has an answer"
    return asked.answer


def withdraw(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Take questions back that only these executions wait for, which are locked: they ended, or went elsewhere."""
    asked = sa.select(awaiting.c.approval_id).where(awaiting.c.execution_id.in_(ids))
    others = sa.exists().where(
        awaiting.c.approval_id == approvals.c.id,
        awaiting.c.execution_id == executions.c.id,
        awaiting.c.execution_id.not_in(ids),
        executions.c.status.in_(OPEN_EXECUTIONS),
    )
    query = approvals.select().where(approvals.c.id.in_(asked), approvals.c.status == "open", ~others)
    for found in fetch_records(connection, QuestionRow, query.order_by(approvals.c.id).with_for_update()):
        connection.execute(approvals.update().where(approvals.c.id == found.id).values(status="withdrawn"))
        data = {"approval": found.id, "question": found.question[:500]}
        add_event(connection, _about(found, None), "approval.withdrawn", data)
    left = sa.select(approvals.c.id).where(approvals.c.status == "open")
    connection.execute(awaiting.delete().where(awaiting.c.execution_id.in_(ids), awaiting.c.approval_id.in_(left)))
