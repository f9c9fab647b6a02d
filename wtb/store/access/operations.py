"""Operations that take longer than a request: who asked for them, when they began, and what came of them.

The server that carries one out renews its lease. One without a lease or an answer was lost with its server.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StoreError
from wtb.store.access.expiry import remove_expired
from wtb.store.bulk import fetch_record
from wtb.store.database import Database
from wtb.store.tables.access import OperationRow
from wtb.store.tables.column_types import FARTHEST_S, is_over
from wtb.store.tables.schema import now, operations
from wtb.store.tables.walls import projects_of, projects_setting
from wtb.store.transactions import clock

LEASE_S = 60.0  # a third of it passes between renewals, each of which may wait 30 s for SQLite's lock


class Status(StrEnum):
    """How an operation stands."""

    running = "running"
    done = "done"
    failed = "failed"
    lost = "lost"  # its server ended before it did


class AlreadyBegun(StoreError):
    """Another request with this key has begun the operation."""


@frozen(slots=True)
class NewOperation:
    """What is kept of an operation when it begins; see `OperationRow`."""

    id: str
    name: str
    by: str
    key: str | None = None


@frozen(slots=True)
class FoundOperation:
    """An operation, and how it stands now."""

    row: OperationRow
    status: Status


def begin_operation(database: Database, new: NewOperation) -> None:
    """Keep that an operation has begun.

    Args:
        database: As whoever asks is limited to it: others who see all of these projects see the operation.
        new: The operation.

    Raises:
        AlreadyBegun: If there is one with its key.
    """
    given = {"id": new.id, "name": new.name, "by": new.by, "key": new.key}
    limits = {"projects": projects_setting(database.scope.projects), "lease_until": now() + LEASE_S}
    remove_expired(database)
    try:
        database.execute(operations.insert().values(given | limits))
    except sa.exc.IntegrityError:
        raise AlreadyBegun("another request with this Idempotency-Key is under way") from None


def renew_operations(database: Database, ids: Collection[str]) -> None:
    """Say that the server of some operations lives."""
    this = operations.update().where(operations.c.id.in_(list(ids)), operations.c.status.is_(None))
    database.execute(this.values(lease_until=now() + LEASE_S))


def end_operation(database: Database, id: str, status: int, location: str | None, body: str) -> None:
    """Keep what an operation was answered."""
    this = operations.update().where(operations.c.id == id)
    database.execute(this.values(ended_at=now(), status=status, location=location, body=body))


def forget_operation(database: Database, id: str) -> None:
    """Remove an operation, as if nobody had asked for it."""
    database.execute(operations.delete().where(operations.c.id == id))


def find_operation(database: Database, id: str) -> FoundOperation | None:
    """Return an operation by its id; None if there is none whose projects may all be seen."""
    return _found(database, operations.c.id == id)


def find_by_key(database: Database, key: str) -> FoundOperation | None:
    """Return an operation by its key, as `find_operation` does."""
    return _found(database, operations.c.key == key)


def _is_running() -> sa.ColumnElement[bool]:
    return sa.and_(operations.c.status.is_(None), sa.not_(is_over(operations.c.lease_until)))


def _found(database: Database, condition: sa.ColumnElement[bool]) -> FoundOperation | None:
    with database.read() as connection:
        row = fetch_record(connection, OperationRow, sa.select(operations).where(condition))
        if row is None or not _is_within(projects_of(row.projects), database.scope.projects):
            return None
        return FoundOperation(row, _status(row, clock(connection)))


def _is_within(projects: frozenset[str] | None, allowed: frozenset[str] | None) -> bool:
    return allowed is None or (projects is not None and projects <= allowed)


def _status(row: OperationRow, at: float) -> Status:
    if row.status is None:
        return Status.running if at < row.lease_until <= at + FARTHEST_S else Status.lost
    return Status.done if row.status < 400 else Status.failed
