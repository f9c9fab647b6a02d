"""Labels and comments of people on cells; of a rater's labels for a metric and a cell, the last one counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from wtb.core.documents.outputs import CellComment
from wtb.core.errors import ConflictError, NotFound
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.store.access.projects import in_scope
from wtb.store.bulk import equal, insert_rows
from wtb.store.database import Database
from wtb.store.housekeeping.retention import lock_present
from wtb.store.log import add_event, last_comment_number, subject
from wtb.store.tables.results import LabelRow, ListedComment
from wtb.store.tables.schema import cases, cells, comments, is_visible, labels, sweeps

_KEY = ("case_number", "repeat", "combination", "rater")


class NewLabel(NamedTuple):
    """A label of a cell. A value of None removes the rater's label."""

    case_number: int
    repeat: int
    combination: int
    rater: str
    value: float | None
    asked: str
    probability: float | None


def label_rows(database: Database, sweep_id: str, metric: str | None = None) -> list[LabelRow]:
    """Return the labels of a sweep, of one metric or all, in the order of cells and raters."""
    query = sa.select(labels).where(labels.c.sweep_id == sweep_id, *equal({labels.c.metric: metric}))
    return database.records(LabelRow, query.order_by(labels.c.metric, *(labels.c[name] for name in _KEY)))


def has_labels(database: Database, sweep_id: str) -> bool:
    """Return whether a sweep has any labels."""
    return database.scalar(sa.select(labels.c.metric).where(labels.c.sweep_id == sweep_id).limit(1)) is not None


def labelled_sweeps(database: Database, project: str, metric: str, limit: int = 20) -> list[str]:
    """Return the ids of sweeps of a project that have labels for a metric, the newest first."""
    labelled = sa.exists().where(labels.c.sweep_id == sweeps.c.id, labels.c.metric == metric)
    query = sa.select(sweeps.c.id).where(sweeps.c.project == project, is_visible, *in_scope(database, sweeps), labelled)
    return database.scalars(query.order_by(sweeps.c.created_at.desc(), sweeps.c.id.desc()).limit(limit))


def write_labels(database: Database, sweep_id: str, metric: str, new_labels: Sequence[NewLabel]) -> None:
    """Write labels in one transaction; they replace those of the same raters for the same cells.

    Raises:
        ConflictError: If the sweep is being deleted.
    """
    same = sa.and_(
        labels.c.sweep_id == sweep_id,
        labels.c.metric == metric,
        *(labels.c[name] == sa.bindparam(f"{name}_") for name in _KEY),
    )
    with database.write() as connection:
        lock_present(connection, sweep_id)  # so that two raters of one name take turns, too
        connection.execute(
            # Deleted first: a label without a value is a withdrawn one, and others replace the earlier label.
            labels.delete().where(same),
            [{f"{name}_": getattr(label, name) for name in _KEY} for label in new_labels],
        )
        rows = [label._asdict() for label in new_labels if label.value is not None]
        if rows:
            insert_rows(connection, labels, [{"sweep_id": sweep_id, "metric": metric, **row} for row in rows])


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
    by_place: dict[tuple[int, int, int], list[CellComment]] = {}
    for row in comment_rows(database, sweep_id, case_numbers):
        by_place.setdefault((row.case_number, row.repeat, row.combination), []).append(comment_of(row))
    return by_place


def write_comment(database: Database, sweep_id: str, cell: CommentedCell, *, by: str, text: str) -> ListedComment:
    """Add a comment to a cell, with its event. A number is never used again.

    Raises:
        ConflictError: If the sweep is being deleted, or has no such cell any more.
    """
    place = {"case_number": cell.case_number, "repeat": cell.repeat, "combination": cell.combination}
    with database.write() as connection:
        sweep = lock_present(connection, sweep_id)  # so that two people take numbers in turn
        same = [cells.c.sweep_id == sweep_id, *(cells.c[name] == coordinate for name, coordinate in place.items())]
        execution = connection.execute(sa.select(cells.c.execution_id).where(*same)).first()
        if execution is None:
            raise ConflictError(f"the cell of case {cell.case!r} was removed from sweep {sweep_id} meanwhile")
        number = last_comment_number(connection, sweep_id) + 1
        row = {"sweep_id": sweep_id, "number": number, **place, "by": by, "text": text}
        insert_rows(connection, comments, [row])
        about = subject(sweep.session_id, sweep_id, execution[0])
        add_event(connection, about, "comment.added", _event_data(number, cell, by))
    return next(comment for comment in comment_rows(database, sweep_id, [cell.case_number]) if comment.number == number)


def delete_comment(database: Database, row: ListedComment, *, by: str) -> None:
    """Delete a comment, with its event.

    Raises:
        ConflictError: If the sweep is being deleted.
        NotFound: If somebody deleted the comment meanwhile.
    """
    with database.write() as connection:
        sweep = lock_present(connection, row.sweep_id)
        same = [comments.c.sweep_id == row.sweep_id, comments.c.number == row.number]
        # The number may have been given to another comment if the last ones were deleted, so the time is compared, too.
        if not connection.execute(comments.delete().where(*same, comments.c.at == row.at)).rowcount:
            raise NotFound(f"comment {row.number} of sweep {row.sweep_id} was deleted meanwhile")
        cell = CommentedCell(row.case_number, row.repeat, row.combination, row.case)
        about = subject(sweep.session_id, row.sweep_id)  # of the sweep: its look has the numbers that are taken
        add_event(connection, about, "comment.deleted", _event_data(row.number, cell, by))


def _event_data(number: int, cell: CommentedCell, by: str) -> dict[str, int | str]:
    """Return the data of an event, without the text: that may be deleted."""
    return {"number": number, "case": cell.case, "repeat": cell.repeat, "combination": cell.combination, "by": by}


@frozen
class GivenLabel:
    """A label as it is stored.

    Attributes:
        metric: The scores that it is held against.
        case: The id of the case.
        combination: The variant of each varied node.
        repeat: Which repeat.
        rater: Who gave it.
        label: Their label.
        asked: Why it was asked for: `random`, or `disagreement` of other raters.
        probability: That its case was drawn with; None where it was not drawn here.
        at: When, in seconds since the epoch.
    """

    metric: str
    case: str
    combination: Mapping[str, str]
    repeat: int
    rater: str
    label: float
    asked: str
    probability: float | None
    at: float
