"""Search for questions to people: one, or those of a sweep or an execution."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wtb.core.arguments import Count, checked
from wtb.core.documents.questions import QuestionDocument, QuestionGroup
from wtb.core.errors import InputError, NotFound
from wtb.core.frozen import frozen
from wtb.display.views.questions import group_document, question_document, whole_question
from wtb.operations.context import Context
from wtb.store.control import approvals
from wtb.store.database import Database
from wtb.store.read.details import find
from wtb.store.records import ListedQuestion

MAX_LISTED = 1_000


@frozen
class Questions:
    """Questions to people, those that wait longest first.

    Attributes:
        question: The one that was named, with what there is to look at; None if several are meant.
        each: Each by itself.
        groups: Open ones, those that ask the same at the same node of a sweep together.
        more: Whether there are more than `each` has.
        more_groups: Whether there are more than `groups` has.
    """

    question: QuestionDocument | None = None
    each: Sequence[QuestionDocument] = ()
    groups: Sequence[QuestionGroup] = ()
    more: bool = False
    more_groups: bool = False


@checked
def find_questions(
    context: Context, ref: str | None = None, *, closed: bool = False, limit: Count = MAX_LISTED
) -> Questions:
    """Find the questions that wait for a person, or one of them.

    Args:
        context: Where.
        ref: A question, or a sweep or an execution whose questions are meant: its id or the beginning of it, or a
            sweep's name. None for all.
        closed: Those that were answered or withdrawn, too.
        limit: Maximum number.

    Returns:
        The question, or those that were found.

    Raises:
        InputError: If there is no such question, sweep or execution.
    """
    database = context.database
    approvals.expire(database)
    named = None if ref is None else _question(database, ref)
    if named is not None:
        return Questions(whole_question(database, named))
    whose = {} if ref is None else _whose(database, ref)
    # One more than the limit shows whether there are more, without counting.
    rows = approvals.approval_rows(database, **whose, closed=closed, limit=limit + 1)
    groups = approvals.question_groups(database, **whose, limit=limit + 1)
    return Questions(
        each=[question_document(row) for row in rows[:limit]],
        groups=[group_document(row) for row in groups[:limit]],
        more=len(rows) > limit,
        more_groups=len(groups) > limit,
    )


def _question(database: Database, ref: str) -> ListedQuestion | None:
    try:
        return approvals.find_approval(database, ref)
    except InputError:
        return None


def _whose(database: Database, ref: str) -> dict[str, str]:
    try:
        target = find(database, ref)
    except InputError as error:
        text = f"there is no question {ref!r} either; `wtb approvals` lists them"
        raise NotFound(text, *error.problems, kind="question") from None
    return {f"{target.kind}_id": target.id}


def find_question(database: Database, ref: str) -> ListedQuestion:
    """Return the row of a question by its id, or of the only open one of an execution or a sweep. Raises InputError."""
    try:
        return approvals.find_approval(database, ref)
    except InputError as error:
        try:
            target = find(database, ref)
        except InputError:
            raise error from None
    sweep_id, execution_id = (target.id, None) if target.kind == "sweep" else (None, target.id)
    asked_by = partial(approvals.approval_rows, database, sweep_id=sweep_id, execution_id=execution_id)
    rows = asked_by()
    if len(rows) == 1:
        return rows[0]
    closed = [] if rows else asked_by(closed=True)
    # Answering an expired question raises an error with its time and its outcome, which helps more than "no answer".
    if closed and closed[-1].status == "expired":  # `give` raises with the time and the result
        return closed[-1]
    ids = ", ".join(row.id for row in rows[:10]) + (", ..." if len(rows) > 10 else "")
    waits = f"waits for {len(rows):,} answers ({ids}): name one of the questions" if rows else "waits for no answer"
    raise InputError(f"{target.kind} {target.id} {waits}; `wtb approvals` lists what is asked")
