"""Comments that people write on cells, numbered within their sweep."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa

from wtb.core.documents.results.outputs import CellComment
from wtb.core.errors import ConflictError, NotFound
from wtb.core.serialization.plain_json import iso
from wtb.store.bulk import insert_rows
from wtb.store.database import Database
from wtb.store.events import add_event, last_comment_number, subject
from wtb.store.housekeeping.retention import locked_sweep
from wtb.store.tables.results import ListedComment
from wtb.store.tables.schema import cases, cells, comments


class CommentedCell(NamedTuple):
    """The place of a cell, with its case's id."""

    case_number: int
    repeat: int
    combination: int
    case: str


def comment_rows(database: Database, sweep_id: str, case_numbers: Iterable[int] | None = None) -> list[ListedComment]:
    """Return the comments of a sweep, or of some of its cases, the oldest first; each with the id of its case."""
    same = sa.and_(cases.c.sweep_id == comments.c.sweep_id, cases.c.number == comments.c.case_number)
    query = sa.select(comments, cases.c.id.label("case")).join(cases, same).where(comments.c.sweep_id == sweep_id)
    if case_numbers is not None:
        query = query.where(comments.c.case_number.in_(sorted(set(case_numbers))))
    return database.records(ListedComment, query.order_by(comments.c.number))


def comment_of(row: ListedComment) -> CellComment:
    """Return a comment as documents of its cell have it."""
    return {"number": row.number, "by": row.by, "at": iso(row.at), "text": row.text}


def comments_by_place(
    database: Database, sweep_id: str, case_numbers: Iterable[int]
) -> dict[tuple[int, int, int], list[CellComment]]:
    """Return the comments on the cells of some cases, by (number of the case, repeat, combination)."""
    found: dict[tuple[int, int, int], list[CellComment]] = {}
    for row in comment_rows(database, sweep_id, case_numbers):
        found.setdefault((row.case_number, row.repeat, row.combination), []).append(comment_of(row))
    return found


def write_comment(database: Database, sweep_id: str, cell: CommentedCell, *, by: str, text: str) -> ListedComment:
    """Add a comment to a cell, with its event. A number is never used again.

    Raises:
        ConflictError: If the sweep is being deleted, or has no such cell any more.
    """
    place = {"case_number": cell.case_number, "repeat": cell.repeat, "combination": cell.combination}
    with database.write() as connection:
        sweep = locked_sweep(connection, sweep_id)  # so that two people take numbers in turn
        if sweep is None:
            raise ConflictError(f"sweep {sweep_id} is being deleted, or was")
        same = [cells.c.sweep_id == sweep_id, *(cells.c[name] == value for name, value in place.items())]
        execution = connection.execute(sa.select(cells.c.execution_id).where(*same)).first()
        if execution is None:
            raise ConflictError(f"the cell of case {cell.case!r} was removed from sweep {sweep_id} meanwhile")
        number = last_comment_number(connection, sweep_id) + 1
        row = {"sweep_id": sweep_id, "number": number, **place, "by": by, "text": text}
        insert_rows(connection, comments, [row])
        about = subject(sweep.session_id, sweep_id, execution[0])
        add_event(connection, about, "comment.added", _event_data(number, cell, by))
    return next(one for one in comment_rows(database, sweep_id, [cell.case_number]) if one.number == number)


def delete_comment(database: Database, row: ListedComment, *, by: str) -> None:
    """Delete a comment, with its event.

    Raises:
        ConflictError: If the sweep is being deleted.
        NotFound: If somebody deleted the comment meanwhile.
    """
    with database.write() as connection:
        sweep = locked_sweep(connection, row.sweep_id)
        if sweep is None:
            raise ConflictError(f"sweep {row.sweep_id} is being deleted, or was")
        same = [comments.c.sweep_id == row.sweep_id, comments.c.number == row.number]
        if not connection.execute(comments.delete().where(*same, comments.c.at == row.at)).rowcount:
            raise NotFound(f"comment {row.number} of sweep {row.sweep_id} was deleted meanwhile")
        cell = CommentedCell(row.case_number, row.repeat, row.combination, row.case)
        about = subject(sweep.session_id, row.sweep_id)  # of the sweep: it says which numbers are taken
        add_event(connection, about, "comment.deleted", _event_data(row.number, cell, by))


def _event_data(number: int, cell: CommentedCell, by: str) -> dict[str, int | str]:
    """Return the data of an event, without the text: that may be deleted."""
    return {
        "number": number,
        "case": cell.case,
        "repeat": cell.repeat,
        "combination": cell.combination,
        "by": by,
    }
