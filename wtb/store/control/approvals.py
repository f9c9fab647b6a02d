"""Questions to people in the database: asked within a flush, answered once, and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from wtb.core.arguments import checked
from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.questions import Answer
from wtb.core.serialization.plain_json import iso, storable
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.values import Json, Value
from wtb.store.access.projects import in_scope
from wtb.store.bulk import equal, fetch_record, fetch_records, insert_missing
from wtb.store.cell_status import end_waiting
from wtb.store.control.edits import edited_head
from wtb.store.database import Database
from wtb.store.log import add_event, subject
from wtb.store.read.queries import as_bytes, the_one
from wtb.store.records import GroupedQuestions, ListedQuestion, SameQuestion
from wtb.store.tables.column_types import is_ahead
from wtb.store.tables.control import NewQuestion, QuestionRow, StoredAnswer
from wtb.store.tables.executions import ExecutionRow
from wtb.store.tables.schema import approvals, awaiting, cases, executions, is_visible, now, sweeps, values, workflows
from wtb.store.tables.sweeps import Subject


def ask(connection: sa.Connection, new_questions: Sequence[tuple[str, NewQuestion]]) -> None:
    """Record the questions that executions wait for. Executions that ask the same at the same checkpoint share a
    question.

    An execution whose question has been answered meanwhile becomes pending at once.

    Args:
        connection: In a transaction that writes.
        new_questions: (execution, row of `approvals`) of each.
    """
    # Questions are locked in one order for all, so that two flushes never wait for each other in a circle.
    for execution, new_question in sorted(new_questions, key=lambda pair: (pair[1]["checkpoint_id"], pair[1]["key"])):
        row = {name: field for name, field in new_question.items() if name != "timeout"}
        insert_missing(connection, approvals, [row])
        query = sa.select(approvals).where(
            approvals.c.checkpoint_id == new_question["checkpoint_id"], approvals.c.key == new_question["key"]
        )
        (question,) = fetch_records(connection, QuestionRow, query.with_for_update())
        insert_missing(connection, awaiting, [{"approval_id": question.id, "execution_id": execution}])
        query = sa.select(executions).where(executions.c.id == execution, executions.c.status == "waiting")
        waits = fetch_record(connection, ExecutionRow, query)
        if waits is None:
            continue
        # A question that is new, withdrawn, or rejected before this execution existed is asked; an answer given
        # in its lifetime counts for it too.
        if question.id == new_question["id"] or question.status == "withdrawn" or _is_over(question, waits.created_at):
            _open(connection, question, new_question["timeout"], execution)
        elif question.status != "open":
            _wake(connection, question, _answer_of(question), [waits])


def _is_over(question: QuestionRow, born: float) -> bool:
    """Return whether a question was rejected before the execution existed, so that a retry asks again."""
    answer = question.answer
    return answer is not None and answer["action"] == "reject" and (question.answered_at or 0.0) < born


def _open(connection: sa.Connection, question: QuestionRow, timeout: float | None, execution: str) -> None:
    """Ask a question again: remove its answer, and restart its timeout."""
    connection.execute(
        approvals.update()
        .where(approvals.c.id == question.id)
        .values(
            status="open",
            answer=sa.null(),
            answered_by=None,
            answered_at=None,
            asked_at=now(),
            expires_at=None if timeout is None else now() + timeout,
        )
    )
    details = {
        "approval": question.id,
        "kind": question.kind,
        "node": question.node,
        "question": question.question[:500],
    }
    add_event(connection, _about(question, execution), "approval.asked", {**details, "timeout_s": timeout})


def _about(question: QuestionRow, execution: str | None) -> Subject:
    return subject(question.session_id, question.sweep_id, execution)


@frozen
class Given:
    """An accepted answer: the row of its question, and the executions that continue with it."""

    row: QuestionRow
    woken: Sequence[str]


def give(database: Database, id: str, answer: Answer, changes: Mapping[str, Value]) -> Given:
    """Answer an open question; all executions that wait for it alone become pending.

    Args:
        database: The database.
        id: The question.
        answer: The answer of a person: approve, reject or modify.
        changes: Changes of the state of the executions, with `modify`.

    Returns:
        The question's row, and the executions that continue.

    Raises:
        ConflictError: If the question is not open any more; the error names who answered, and how.
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
                # More executions began to wait between the two locks. A new transaction locks them, too.
                continue
            question, waiting = locked
            if question.status != "open":
                raise ConflictError(_answered(question))
            return Given(*_settle(connection, question, waiting, stored, answer.by, changes))


def expire(database: Database) -> int:
    """Answer questions whose timeout is over with their defaults. Returns how many."""
    _set_right(database)
    at = sa.select(now()).scalar_subquery()  # read once, so that the index finds those that are due
    due = sa.select(approvals.c.id).where(approvals.c.status == "open", approvals.c.expires_at <= at)
    ids = database.scalars(due)
    expired = 0
    for id in ids:
        with database.write() as connection:
            locked = _lock(connection, id)
            if locked is None or locked[0].status != "open":  # the next look finds it, or somebody was quicker
                continue
            question, waiting = locked
            default = question.default
            answer: StoredAnswer = {
                "action": "expired" if default is None else "approve",
                "choice": None if default is None else default["choice"],
                "feedback": None,
                "value": None,
                "set": {},
                "heads": [],
            }
            _settle(connection, question, waiting, answer, None, {})
            expired += 1
    return expired


def _set_right(database: Database) -> None:
    """Restart the timeout of questions that were asked while the clock was ahead."""
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
    (question,) = fetch_records(
        connection, QuestionRow, sa.select(approvals).where(approvals.c.id == id).with_for_update()
    )
    return (question, rows) if set(connection.scalars(mine)) == {row.id for row in rows} else None


def _settle(
    connection: sa.Connection,
    question: QuestionRow,
    waiting: Sequence[ExecutionRow],
    answer: StoredAnswer,
    by: str | None,
    changes: Mapping[str, Value],
) -> tuple[QuestionRow, list[str]]:
    """Record an answer and wake the executions that waited for it. Returns the question's new row, and their ids.

    by: None if the timeout was over.
    """
    status = "expired" if by is None else "answered"
    query = (
        approvals.update()
        .where(approvals.c.id == question.id, approvals.c.status == "open")
        .values(status=status, answer=answer, answered_by=by, answered_at=now())
        .returning(approvals)
    )
    (question,) = fetch_records(connection, QuestionRow, query)
    woken = _wake(connection, question, answer, waiting, changes)
    value, answered_at = answer.get("value"), question.answered_at or question.asked_at
    details: dict[str, Json] = {
        "approval": question.id,
        "kind": question.kind,
        "node": question.node,
        "by": by,
        "action": answer["action"],
        "choice": answer["choice"],
        "feedback": answer["feedback"],
        "value": value and storable(value, 500),
        "keys": [*sorted(answer["set"])],
        "latency_s": round(answered_at - question.asked_at, 3),
        "executions": len(waiting),
        "woken": [*woken],
    }
    only = waiting[0].id if len(waiting) == 1 else None
    add_event(connection, _about(question, only), f"approval.{status}", details)
    return question, woken


def _wake(
    connection: sa.Connection,
    question: QuestionRow,
    answer: StoredAnswer,
    waiting: Sequence[ExecutionRow],
    changes: Mapping[str, Value] | None = None,
) -> list[str]:
    """Make waiting executions pending with an answer, from a changed state if the answer has one. Returns their ids.

    One that somebody paused meanwhile stays paused; one that runs finds the answer when it asks.
    """
    # Those that ended meanwhile have withdrawn what they asked.
    wakeable = [row for row in waiting if row.status in ("waiting", "paused", "pending")]
    if answer["set"]:
        changes = changes or _stored(connection, answer["set"])
        heads = list(answer["heads"])
        for row in wakeable:
            # An execution whose head has moved meanwhile has another state, which the answer was not about.
            if row.head_id == question.checkpoint_id:
                heads.append(head := edited_head(connection, row, changes))
                if row.passed_id == row.head_id:  # what held it up there does not do so again
                    connection.execute(executions.update().where(executions.c.id == row.id).values(passed_id=head))
        answer = {**answer, "heads": heads}
        connection.execute(approvals.update().where(approvals.c.id == question.id).values(answer=answer))
        withdraw(connection, [row.id for row in wakeable])  # what else was asked of the state as it was
    reason = None
    if answer["action"] == "expired":
        reason = f"question {question.id} expired at {iso(question.answered_at)}: nobody answered, and no default"
    ids = [row.id for row in wakeable if row.status == "waiting"]
    connection.execute(
        executions.update()
        .where(executions.c.id.in_(ids), executions.c.status == "waiting")
        .values(status="pending", reason=reason)
    )
    end_waiting(connection, [row for row in wakeable if row.status == "waiting"])
    return ids


def _stored(connection: sa.Connection, digests: Mapping[str, str]) -> dict[str, Value]:
    rows = connection.execute(sa.select(values.c.digest, values.c.data).where(values.c.digest.in_(digests.values())))
    contents = {digest: as_bytes(stored) for digest, stored in rows}
    return {name: Value(digest, contents[digest]) for name, digest in digests.items()}


def _answered(question: QuestionRow) -> str:
    """Return the error text for a question that cannot be answered, with its present state."""
    at = iso(question.answered_at)
    if question.status == "expired":
        came = "it has no default, so that its node fails" if question.default is None else "its default counted"
        return f"question {question.id} expired: it was not answered in time ({at}); {came}"
    if question.status == "withdrawn":
        return f"question {question.id} was withdrawn: nobody waits for its answer any more"
    answer = _answer_of(question)
    chose = f" with {answer['choice']!r}" if answer["choice"] else ""
    feedback = f", with the feedback {answer['feedback'][:200]!r}" if answer["feedback"] else ""
    answer_value = answer.get("value")
    value_text = f", with the value {storable(answer_value, 200)}" if answer_value else ""
    did = {"approve": "approved", "reject": "rejected", "modify": "modified"}[answer["action"]]
    outcome = f"{question.answered_by} {did} it{chose}{value_text}{feedback}"
    return f"question {question.id} was answered already: {outcome} at {at}"


def _answer_of(question: QuestionRow) -> StoredAnswer:
    assert question.answer is not None, "a question that is neither open nor withdrawn has an answer"
    return question.answer


def withdraw(connection: sa.Connection, ids: Sequence[str]) -> None:
    """Withdraw questions that only these executions wait for, which are locked, because they ended or went
    elsewhere.
    """
    question_ids = sa.select(awaiting.c.approval_id).where(awaiting.c.execution_id.in_(ids))
    is_awaited = sa.exists().where(
        awaiting.c.approval_id == approvals.c.id,
        awaiting.c.execution_id == executions.c.id,
        awaiting.c.execution_id.not_in(ids),
        executions.c.status.in_(OPEN_EXECUTIONS),
    )
    query = approvals.select().where(approvals.c.id.in_(question_ids), approvals.c.status == "open", ~is_awaited)
    for question in fetch_records(connection, QuestionRow, query.order_by(approvals.c.id).with_for_update()):
        connection.execute(approvals.update().where(approvals.c.id == question.id).values(status="withdrawn"))
        details = {"approval": question.id, "question": question.question[:500]}
        add_event(connection, _about(question, None), "approval.withdrawn", details)
    # Answered questions keep these rows: lists count the executions that waited.
    open_ids = sa.select(approvals.c.id).where(approvals.c.status == "open")
    connection.execute(awaiting.delete().where(awaiting.c.execution_id.in_(ids), awaiting.c.approval_id.in_(open_ids)))


def at_checkpoints(database: Database, ids: Sequence[str]) -> list[QuestionRow]:
    """Return all questions of these checkpoints, answered or open, without withdrawn ones."""
    query = sa.select(approvals).where(approvals.c.checkpoint_id.in_(list(ids)), approvals.c.status != "withdrawn")
    return database.records(QuestionRow, query.order_by(approvals.c.asked_at))


def approval_rows(
    database: Database,
    *,
    sweep_id: str | None = None,
    execution_id: str | None = None,
    id: str | None = None,
    closed: bool = False,
    limit: int | None = None,
) -> list[ListedQuestion]:
    """Return questions, those that wait longest first.

    Each has `sweep` (its name), `sweep_kind`, `queued`, `workflow`, `case`, and `executions`: how many wait or waited.

    Args:
        database: The database.
        sweep_id: Only questions of this sweep.
        execution_id: Only questions that this execution waits or waited for.
        id: The id of one question, or its beginning.
        closed: Include answered questions.
        limit: The largest number of questions.
    """
    conditions = [*_of(sweep_id, execution_id), *in_scope(database, approvals)]
    if id is not None:
        conditions.append(approvals.c.id.startswith(id, autoescape=True))
    elif not closed:
        conditions.append(approvals.c.status == "open")
    counted = _counted(conditions)
    query = (
        sa.select(
            approvals,
            sweeps.c.name.label("sweep"),
            sweeps.c.kind.label("sweep_kind"),
            sweeps.c.queued,
            workflows.c.name.label("workflow"),
            cases.c.id.label("case"),
            sa.func.coalesce(counted.c.executions, 0).label("executions"),
        )
        .join(sweeps, sa.and_(sweeps.c.id == approvals.c.sweep_id, is_visible))
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        .outerjoin(counted, counted.c.approval_id == approvals.c.id)
        .outerjoin(cases, sa.and_(cases.c.sweep_id == approvals.c.sweep_id, cases.c.number == counted.c.case_number))
        .where(*conditions)
        .order_by(approvals.c.asked_at, approvals.c.id)
        .limit(limit)
    )
    return database.records(ListedQuestion, query)


def _of(sweep_id: str | None, execution_id: str | None) -> list[sa.ColumnElement[bool]]:
    """Return the conditions for questions of a sweep, and for those that an execution waits or waited for."""
    mine = sa.select(awaiting.c.approval_id).where(awaiting.c.execution_id == execution_id)
    return [*equal({approvals.c.sweep_id: sweep_id}), *([] if execution_id is None else [approvals.c.id.in_(mine)])]


def _counted(conditions: Sequence[sa.ColumnElement[bool]]) -> sa.Subquery:
    """Return the number of executions that wait or waited for each of these questions, and the first of their cases."""
    return (
        sa.select(
            awaiting.c.approval_id,
            sa.func.count().label("executions"),
            sa.func.min(executions.c.case_number).label("case_number"),
        )
        .join(executions, executions.c.id == awaiting.c.execution_id)
        .join(approvals, approvals.c.id == awaiting.c.approval_id)
        .where(*conditions)
        .group_by(awaiting.c.approval_id)
        .subquery()
    )


def question_groups(
    database: Database, *, sweep_id: str | None = None, execution_id: str | None = None, limit: int | None = None
) -> list[GroupedQuestions]:
    """Return open questions grouped by sweep, node and text, in the order of time.

    Each group has `id` (the first), `questions` (how many), `executions`, `cases` (how many), `case` (the first),
    question, kind, node, options, `sweep_id`, `sweep`, `sweep_kind`, `workflow`, and the first `asked_at` and
    `expires_at`.
    """
    conditions = [approvals.c.status == "open", *_of(sweep_id, execution_id), *in_scope(database, approvals)]
    counted = _counted(conditions)
    options = sa.cast(approvals.c.options, sa.Text).label("options")  # JSON as such cannot be compared
    same = (approvals.c.sweep_id, approvals.c.node, approvals.c.kind, approvals.c.question, options)
    groups = (
        sa.select(
            *same,
            sa.func.min(approvals.c.id).label("id"),
            sa.func.count().label("questions"),
            sa.func.coalesce(sa.func.sum(counted.c.executions), 0).label("executions"),
            sa.func.count(counted.c.case_number.distinct()).label("cases"),
            sa.func.min(counted.c.case_number).label("case_number"),
            *(sa.func.min(approvals.c[name]).label(name) for name in ("asked_at", "expires_at")),
        )
        .outerjoin(counted, counted.c.approval_id == approvals.c.id)
        .where(*conditions)
        .group_by(*same)
        .subquery()
    )
    query = (
        sa.select(
            groups,
            sweeps.c.name.label("sweep"),
            sweeps.c.kind.label("sweep_kind"),
            workflows.c.name.label("workflow"),
            cases.c.id.label("case"),
        )
        .join(sweeps, sa.and_(sweeps.c.id == groups.c.sweep_id, is_visible))
        .join(workflows, workflows.c.id == sweeps.c.workflow_id)
        .outerjoin(cases, sa.and_(cases.c.sweep_id == groups.c.sweep_id, cases.c.number == groups.c.case_number))
        .order_by(groups.c.asked_at, groups.c.id)
        .limit(limit)
    )
    rows = database.rows(query)
    return [GroupedQuestions(**{**row, "options": json.loads(row["options"] or "[]")}) for row in rows]


def alike(
    database: Database,
    *,
    sweep_id: str | None = None,
    node: str | None = None,
    question: ListedQuestion | None = None,
    text: str | None = None,
) -> list[SameQuestion]:
    """Return open questions of a sweep or node that match a question or contain a text.

    Each has id, kind, node, question, options, sweep_id, and `executions`: how many wait for it.
    """
    conditions = [approvals.c.status == "open", *in_scope(database, approvals)]
    conditions += equal({approvals.c.sweep_id: sweep_id, approvals.c.node: node})
    if question is not None:
        conditions += [approvals.c.question == question.question, approvals.c.kind == question.kind]
    if text is not None:
        conditions.append(sa.func.lower(approvals.c.question).contains(text.lower(), autoescape=True))
    counted = _counted(conditions)
    columns = ("id", "kind", "node", "question", "options", "status", "sweep_id")
    query = (
        sa.select(
            *(approvals.c[name] for name in columns), sa.func.coalesce(counted.c.executions, 0).label("executions")
        )
        .join(sweeps, sa.and_(sweeps.c.id == approvals.c.sweep_id, is_visible))
        .outerjoin(counted, counted.c.approval_id == approvals.c.id)
        .where(*conditions)
        .order_by(approvals.c.asked_at, approvals.c.id)
    )
    rows = database.records(SameQuestion, query)
    # Options are JSON, which the databases do not compare.
    return [row for row in rows if question is None or (row.options or []) == (question.options or [])]


@checked
def find_approval(database: Database, ref: str) -> ListedQuestion:
    """Find a question by its id or the beginning of it, as `approval_rows` returns it. Raises InputError."""
    rows = approval_rows(database, id=ref) if ref else []
    return the_one({row.id: row for row in rows}, ref, "question", "`wtb approvals --all` lists them")
