"""Comments of people on cells: added, listed, and deleted by their authors."""

from __future__ import annotations

from typing import Annotated, Final

from wtb.config.run_options import redactor_of
from wtb.core.arguments import FromZero, Number, Text, checked
from wtb.core.documents.outputs import CommentDocument, CommentsDocument
from wtb.core.errors import AccessDenied, InputError
from wtb.core.ids import plain_id
from wtb.core.scoring.scores import MOST_COMMENT
from wtb.core.serialization.plain_json import storable
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.identity import Method
from wtb.operations.results.pools import check_no_pool
from wtb.store.control import labels
from wtb.store.control.labels import CommentedCell
from wtb.store.database import Database
from wtb.store.read import details, evidence, queries
from wtb.store.tables.results import ListedComment

_AUTHOR: Final = 255

CommentText = Annotated[str, Text(longest=MOST_COMMENT)]
CommentNumber = Annotated[int, Number(1, 2**31 - 1, whole=True)]


@checked
@audited
def add_comment(
    context: Context, ref: str, case: str, text: CommentText, *, row: FromZero = 0, repeat: FromZero = 0
) -> CommentDocument:
    """Write a comment on a cell, for everyone who may read the sweep.

    Args:
        context: Where, and who writes it.
        ref: A sweep: its id, the beginning of it, or its name.
        case: The id of the case.
        text: At most 4,096 characters. What the sweep redacts is replaced.
        row: The number of the combination, as the matrix has it.
        repeat: Which repeat of the case.

    Returns:
        The comment, with its number.

    Raises:
        InputError: If there is no such sweep or cell, or the text is empty or too long.
        ConflictError: If the sweep is a pool, or is being deleted.
    """
    database = context.database
    if not text.strip():
        raise InputError("text is blank; expected a comment", argument="text")
    sweep = queries.find_sweep(database, ref)
    check_no_pool(database, sweep, "commented on")
    cell = _cell(database, sweep.id, case, row, repeat)
    redacted = storable(redactor_of(sweep.spec.get("redact")).text(text), MOST_COMMENT)
    comment = labels.write_comment(database, sweep.id, cell, by=_author(context), text=redacted)
    return _comment_document(comment)


@checked
@audited
def delete_comment(context: Context, ref: str, number: CommentNumber) -> CommentDocument:
    """Delete a comment. Only its author may do so, and the operator of the database.

    Args:
        context: Where, and who deletes it.
        ref: A sweep: its id, the beginning of it, or its name.
        number: The number of the comment within the sweep.

    Returns:
        What was deleted.

    Raises:
        InputError: If there is no such sweep or comment.
        AccessDenied: If somebody else wrote it.
        ConflictError: If the sweep is being deleted.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    comment = next((row for row in labels.comment_rows(database, sweep.id) if row.number == number), None)
    if comment is None:
        raise InputError(
            f"sweep {sweep.id} has no comment {number}; list its comments to see their numbers", argument="number"
        )
    author = _author(context)
    if comment.by != author and context.identity.method is not Method.operator:
        raise AccessDenied(f"{comment.by!r} wrote comment {number}, and {author!r} may not delete it; ask its author")
    labels.delete_comment(database, comment, by=author)
    return _comment_document(comment)


@checked
def list_comments(context: Context, ref: str, *, case: str | None = None) -> CommentsDocument:
    """List the comments on the cells of a sweep, the oldest first.

    Args:
        context: Where.
        ref: A sweep: its id, the beginning of it, or its name.
        case: Only those on cells of the case with this id.

    Returns:
        The comments.

    Raises:
        InputError: If there is no such sweep or case.
    """
    database = context.database
    sweep = queries.find_sweep(database, ref)
    numbers = None if case is None else [_case_number(database, sweep.id, case)]
    return {"comments": [_comment_document(row) for row in labels.comment_rows(database, sweep.id, numbers)]}


def _author(context: Context) -> str:
    return storable(context.principal, _AUTHOR)


def _case_number(database: Database, sweep_id: str, case: str) -> int:
    details.check_case(database, sweep_id, case)
    numbers = evidence.case_numbers(database, sweep_id)
    return numbers[case if case in numbers else plain_id(case)]


def _cell(database: Database, sweep_id: str, case: str, row: int, repeat: int) -> CommentedCell:
    """Find a cell. Raises InputError."""
    number = _case_number(database, sweep_id, case)
    rows = len(queries.choices(database, sweep_id))
    if row >= rows:
        raise InputError(f"row is {row}; expected the number of a combination, 0 to {rows - 1}", argument="row")
    if not details.cells_like(database, sweep_id, case=case, repeat=repeat, combinations=[row], limit=1):
        raise InputError(f"case {case!r} has no repeat {repeat} under combination {row}", argument="repeat")
    return CommentedCell(number, repeat, row, case)


def _comment_document(row: ListedComment) -> CommentDocument:
    return {
        **labels.comment_of(row),
        "sweep": row.sweep_id,
        "case": row.case,
        "row": row.combination,
        "repeat": row.repeat,
    }
