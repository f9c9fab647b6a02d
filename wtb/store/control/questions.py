"""Reading back what people are asked, and what they answered."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from wtb.core.arguments.checking import checked
from wtb.store.access.scope import in_scope
from wtb.store.bulk import equal
from wtb.store.database import Database
from wtb.store.read.queries import the_one
from wtb.store.rows.control import GroupedQuestions, ListedQuestion, SameQuestion
from wtb.store.tables.control import QuestionRow
from wtb.store.tables.schema import approvals, awaiting, cases, executions, is_visible, sweeps, workflows


def at_checkpoints(database: Database, ids: Sequence[str]) -> list[QuestionRow]:
    """All that was asked at these checkpoints, answered or open."""
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
    """Questions, those that wait longest first, each with `sweep` (its name), `sweep_kind`, `queued`, `workflow`,
    `case` and how many `executions` wait or waited for it.

    closed: the answered ones too. id: of one, or its beginning.
    """
    wanted = [*_of(sweep_id, execution_id), *in_scope(database, approvals)]
    if id is not None:
        wanted.append(approvals.c.id.startswith(id, autoescape=True))
    elif not closed:
        wanted.append(approvals.c.status == "open")
    counted = _counted(wanted)
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
        .where(*wanted)
        .order_by(approvals.c.asked_at, approvals.c.id)
        .limit(limit)
    )
    return database.records(ListedQuestion, query)


def _of(sweep_id: str | None, execution_id: str | None) -> list[sa.ColumnElement[bool]]:
    """The conditions for questions of a sweep, and for those that an execution waits or waited for."""
    mine = sa.select(awaiting.c.approval_id).where(awaiting.c.execution_id == execution_id)
    return [*equal({approvals.c.sweep_id: sweep_id}), *([] if execution_id is None else [approvals.c.id.in_(mine)])]


def _counted(wanted: Sequence[sa.ColumnElement[bool]]) -> sa.Subquery:
    """How many executions wait or waited for each of these questions, and the first of their cases."""
    return (
        sa.select(
            awaiting.c.approval_id,
            sa.func.count().label("executions"),
            sa.func.min(executions.c.case_number).label("case_number"),
        )
        .join(executions, executions.c.id == awaiting.c.execution_id)
        .join(approvals, approvals.c.id == awaiting.c.approval_id)
        .where(*wanted)
        .group_by(awaiting.c.approval_id)
        .subquery()
    )


def question_groups(
    database: Database, *, sweep_id: str | None = None, execution_id: str | None = None, limit: int | None = None
) -> list[GroupedQuestions]:
    """Open questions that ask the same at the same node of the same sweep, each group once, in the order of time.

    Of each: `id` (the first), `questions` (how many), `executions`, `cases` (how many), `case` (the first), question,
    kind, node, options, `sweep_id`, `sweep`, `sweep_kind`, `workflow`, and the first `asked_at` and `expires_at`.
    """
    wanted = [approvals.c.status == "open", *_of(sweep_id, execution_id), *in_scope(database, approvals)]
    counted = _counted(wanted)
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
            sa.func.min(approvals.c.asked_at).label("asked_at"),
            sa.func.min(approvals.c.expires_at).label("expires_at"),
        )
        .outerjoin(counted, counted.c.approval_id == approvals.c.id)
        .where(*wanted)
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
    with database.read() as connection:
        rows = connection.execute(query).all()
    return [GroupedQuestions(**{**row._mapping, "options": json.loads(row.options or "[]")}) for row in rows]


def alike(
    database: Database,
    *,
    sweep_id: str | None = None,
    node: str | None = None,
    question: ListedQuestion | None = None,
    text: str | None = None,
) -> list[SameQuestion]:
    """Open questions of a sweep, of a node, that ask the same as one of them, or that have a text in them: of each id,
    kind, node, question, options, sweep_id and how many `executions` wait for it."""
    wanted = [approvals.c.status == "open", *in_scope(database, approvals)]
    wanted += equal({approvals.c.sweep_id: sweep_id, approvals.c.node: node})
    if question is not None:
        wanted += [approvals.c.question == question.question, approvals.c.kind == question.kind]
    if text is not None:
        wanted.append(sa.func.lower(approvals.c.question).contains(text.lower(), autoescape=True))
    counted = _counted(wanted)
    columns = ("id", "kind", "node", "question", "options", "status", "sweep_id")
    query = (
        sa.select(
            *(approvals.c[name] for name in columns), sa.func.coalesce(counted.c.executions, 0).label("executions")
        )
        .join(sweeps, sa.and_(sweeps.c.id == approvals.c.sweep_id, is_visible))
        .outerjoin(counted, counted.c.approval_id == approvals.c.id)
        .where(*wanted)
        .order_by(approvals.c.asked_at, approvals.c.id)
    )
    rows = database.records(SameQuestion, query)
    return [row for row in rows if question is None or (row.options or []) == (question.options or [])]


@checked
def find_approval(database: Database, ref: str) -> ListedQuestion:
    """A question by its id or the beginning of it, as `approval_rows` gives it. Raises InputError."""
    rows = approval_rows(database, id=ref) if ref else []
    return the_one({row.id: row for row in rows}, ref, "question", "`wtb approvals --all` lists them")
