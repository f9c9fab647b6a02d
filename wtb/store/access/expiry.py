"""What is kept for a day only: uploads, operations that take long, and answers to requests.

They are copies that spare somebody to send or to do a thing again. Whoever removes them sees those of all projects.
"""

from __future__ import annotations

from collections.abc import Collection

import orjson
import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.store.bulk import parts
from wtb.store.database import Database
from wtb.store.tables.column_types import is_ahead, is_over
from wtb.store.tables.schema import idempotency_keys, now, operations, uploads
from wtb.store.tables.walls import projects_of
from wtb.store.transactions import Scope

KEPT_S = 86_400.0
COMES_S = 120.0  # all of an upload must have come by then
_GONE = 410

Condition = sa.ColumnElement[bool]


@frozen
class Copies:
    """How much there is of what is kept for a day.

    Attributes:
        uploads: Files that were sent.
        bytes: Theirs.
        answers: To requests, those of long operations included.
    """

    uploads: int
    bytes: int
    answers: int


def _expired() -> tuple[Condition, Condition, Condition]:
    """Return which uploads, operations and keys are older than a day; an operation stays while it is under way."""
    has_ended = sa.or_(operations.c.status.is_not(None), is_over(operations.c.lease_until))
    begun = sa.and_(_is_old(operations.c.began_at), has_ended)
    return _is_old(uploads.c.created_at), begun, _is_old(idempotency_keys.c.created_at)


def _is_old(stored: sa.ColumnElement[float]) -> Condition:
    return sa.or_(stored < now() - KEPT_S, is_ahead(stored))


def count_expired(connection: sa.Connection) -> Copies:
    """Count what `remove_expired` would remove, for whoever sees all projects."""
    sent, begun, answered = _expired()
    count, size = _uploads(connection, sent)
    return Copies(count, size, _count(connection, operations, begun) + _count(connection, idempotency_keys, answered))


def remove_expired(database: Database) -> Copies:
    """Remove what is older than a day.

    Args:
        database: Where, whatever it is limited to.

    Returns:
        How much that was.
    """
    sent, begun, answered = _expired()
    with database.within(Scope()).write() as connection:
        sizes = connection.scalars(uploads.delete().where(sent).returning(uploads.c.bytes)).all()
        answers = connection.execute(operations.delete().where(begun)).rowcount
        answers += connection.execute(idempotency_keys.delete().where(answered)).rowcount
    return Copies(len(sizes), sum(sizes), answers)


def count_copies(database: Database, projects: Collection[str]) -> Copies:
    """Count what `erase_copies` would erase."""
    with database.within(Scope()).read() as connection:
        count, size = _uploads(connection, _is_copy(projects))
        answers = sum(len(_answers(connection, table, projects)) for table in (operations, idempotency_keys))
        return Copies(count, size, answers)


def erase_copies(database: Database, projects: Collection[str], detail: str) -> Copies:
    """Erase what may hold something of some projects: nobody knows what is in files and answers.

    A request whose answer is erased is not carried out again when it is sent again: it is told that what it did is
    done. What is under way comes later, and goes within a day.

    Args:
        database: Where, whatever it is limited to.
        projects: Their names.
        detail: What is answered from then on.

    Returns:
        How much that was.
    """
    problem = {"type": "about:blank", "title": "Gone", "status": _GONE, "detail": detail}
    answer = {"status": _GONE, "body": orjson.dumps(problem).decode()}
    answers = 0
    with database.within(Scope()).write() as connection:
        sizes = connection.scalars(uploads.delete().where(_is_copy(projects)).returning(uploads.c.bytes)).all()
        for table in (operations, idempotency_keys):
            (key,) = table.primary_key
            for part in parts(_answers(connection, table, projects)):
                answers += connection.execute(table.update().where(key.in_(part)).values(answer)).rowcount
    return Copies(len(sizes), sum(sizes), answers)


def _is_copy(projects: Collection[str]) -> Condition:
    """Uploads of projects that came whole, or never will."""
    has_come = sa.or_(uploads.c.completed_at.is_not(None), uploads.c.created_at < now() - COMES_S)
    return sa.and_(uploads.c.project.in_(sorted(projects)), has_come)


def _answers(connection: sa.Connection, table: sa.Table, projects: Collection[str]) -> list[str]:
    """Return the keys of the answers that may tell of some projects."""
    (key,) = table.primary_key
    query = sa.select(key, table.c.projects).where(table.c.body.is_not(None), table.c.status != _GONE)
    rows = connection.execute(query)
    return [found for found, setting in rows if (seen := projects_of(setting)) is None or not seen.isdisjoint(projects)]


def _uploads(connection: sa.Connection, which: Condition) -> tuple[int, int]:
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(uploads.c.bytes), 0)).where(which)
    count, size = connection.execute(query).one()
    return count, int(size)


def _count(connection: sa.Connection, table: sa.Table, which: Condition) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table).where(which)) or 0
