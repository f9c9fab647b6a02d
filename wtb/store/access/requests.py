"""Copies that a server keeps for a day: long operations, answers to requests, and files that sweeps take cases from.

They spare clients sending or doing a thing again. Their removal covers all projects, whatever the caller is limited to.

The server that carries out an operation renews its lease. An operation without a lease or an answer was lost with its
server.

Uploads are stored in the database, in parts: every server can read them, and no other project can. A sweep has its
cases in rows of its own, so nothing refers to an upload after the submission.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import asdict
from enum import StrEnum

import orjson
import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.frozen import frozen
from wtb.core.roles import is_within
from wtb.store.access.projects import in_scope, scope_of
from wtb.store.bulk import fetch_record, insert_of, parts
from wtb.store.database import Database
from wtb.store.tables.access import IdempotencyKeyRow, OperationRow, UploadRow
from wtb.store.tables.column_types import FARTHEST_S, is_ahead, is_over
from wtb.store.tables.schema import idempotency_keys, now, operations, upload_parts, uploads
from wtb.store.tables.walls import projects_of, projects_setting
from wtb.store.transactions import Scope, clock

KEPT_S = 86_400.0
COMES_S = 120.0  # by then an upload must be complete
_GONE_STATUS = 410

Condition = sa.ColumnElement[bool]


@frozen
class Copies:
    """The numbers of copies that are kept for a day.

    Attributes:
        uploads: Uploaded files.
        bytes: Their size.
        answers: Answers to requests, including those of long operations.
    """

    uploads: int
    bytes: int
    answers: int


def _expired() -> tuple[Condition, Condition, Condition]:
    """Return the conditions for uploads, operations and keys older than a day; running operations stay."""
    has_ended = sa.or_(operations.c.status.is_not(None), is_over(operations.c.lease_until))
    old_operations = sa.and_(_is_old(operations.c.began_at), has_ended)
    return _is_old(uploads.c.created_at), old_operations, _is_old(idempotency_keys.c.created_at)


def _is_old(stored: sa.ColumnElement[float]) -> Condition:
    # A time ahead of the clock would otherwise keep a copy for longer than a day.
    return sa.or_(stored < now() - KEPT_S, is_ahead(stored))


def count_expired(connection: sa.Connection) -> Copies:
    """Count the copies that `remove_expired` would remove in all projects."""
    sent, old_operations, answered = _expired()
    count, size = _uploads(connection, sent)
    return Copies(
        count, size, _count(connection, operations, old_operations) + _count(connection, idempotency_keys, answered)
    )


def remove_expired(database: Database) -> Copies:
    """Remove all copies that are older than a day.

    Args:
        database: The database, whatever it is limited to.

    Returns:
        The numbers of removed copies.
    """
    sent, old_operations, answered = _expired()
    with database.within(Scope()).write() as connection:
        sizes = connection.scalars(uploads.delete().where(sent).returning(uploads.c.bytes)).all()
        answers = connection.execute(operations.delete().where(old_operations)).rowcount
        answers += connection.execute(idempotency_keys.delete().where(answered)).rowcount
    return Copies(len(sizes), sum(sizes), answers)


def count_copies(database: Database, projects: Collection[str]) -> Copies:
    """Count the copies that `erase_copies` would erase."""
    with database.within(Scope()).read() as connection:
        count, size = _uploads(connection, _is_copy(projects))
        answers = sum(len(_answers(connection, table, projects)) for table in (operations, idempotency_keys))
        return Copies(count, size, answers)


def erase_copies(database: Database, projects: Collection[str], detail: str) -> Copies:
    """Erase all copies of some projects, because files and answers may contain anything.

    A request whose answer is erased is not carried out again if the client repeats it: the answer is that it was done.
    Operations under way store their answers later, and these are removed within a day.

    Args:
        database: The database, whatever it is limited to.
        projects: Their names.
        detail: The text of the answers from then on.

    Returns:
        The numbers of erased copies.
    """
    problem = {"type": "about:blank", "title": "Gone", "status": _GONE_STATUS, "detail": detail}
    answer = {"status": _GONE_STATUS, "body": orjson.dumps(problem).decode()}
    # Keys and operations stay, so that a repeated request is still recognised.
    answers = 0
    with database.within(Scope()).write() as connection:
        sizes = connection.scalars(uploads.delete().where(_is_copy(projects)).returning(uploads.c.bytes)).all()
        for table in (operations, idempotency_keys):
            (key,) = table.primary_key
            for part in parts(_answers(connection, table, projects)):
                answers += connection.execute(table.update().where(key.in_(part)).values(answer)).rowcount
    return Copies(len(sizes), sum(sizes), answers)


def _is_copy(projects: Collection[str]) -> Condition:
    """Return the condition for uploads of projects that are complete, or never will be."""
    has_come = sa.or_(uploads.c.completed_at.is_not(None), uploads.c.created_at < now() - COMES_S)
    return sa.and_(uploads.c.project.in_(sorted(projects)), has_come)


def _answers(connection: sa.Connection, table: sa.Table, projects: Collection[str]) -> list[str]:
    """Return the keys of the answers that may contain something of some projects."""
    (key,) = table.primary_key
    query = sa.select(key, table.c.projects).where(table.c.body.is_not(None), table.c.status != _GONE_STATUS)
    rows = connection.execute(query)
    return [
        answer_key
        for answer_key, setting in rows
        if (seen := projects_of(setting)) is None or not seen.isdisjoint(projects)
    ]


def _uploads(connection: sa.Connection, which: Condition) -> tuple[int, int]:
    query = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(uploads.c.bytes), 0)).where(which)
    count, size = connection.execute(query).one()
    return count, int(size)


def _count(connection: sa.Connection, table: sa.Table, which: Condition) -> int:
    return connection.scalar(sa.select(sa.func.count()).select_from(table).where(which)) or 0


LEASE_S = 60.0  # a third of it passes between renewals, each of which may wait 30 s for SQLite's lock


class Status(StrEnum):
    """The status of an operation."""

    running = "running"
    done = "done"
    failed = "failed"
    lost = "lost"  # its server ended before it did


class AlreadyBegun(StoreError):
    """Another request with this key has begun the operation."""


@frozen(slots=True)
class NewOperation:
    """An operation that begins; see `OperationRow`."""

    id: str
    name: str
    by: str
    key: str | None = None


@frozen(slots=True)
class FoundOperation:
    """An operation with its present status."""

    row: OperationRow
    status: Status


def begin_operation(database: Database, new: NewOperation) -> None:
    """Record that an operation has begun.

    Args:
        database: Limited to the caller's projects: others who see all of these projects see the operation.
        new: The operation.

    Raises:
        AlreadyBegun: If there is one with its key.
    """
    limits = {"projects": projects_setting(database.scope.projects), "lease_until": now() + LEASE_S}
    remove_expired(database)
    try:
        database.execute(operations.insert().values(asdict(new) | limits))
    except sa.exc.IntegrityError:
        raise AlreadyBegun("another request with this Idempotency-Key is under way") from None


def renew_operations(database: Database, ids: Collection[str]) -> None:
    """Renew the leases of operations that a server carries out."""
    this = operations.update().where(operations.c.id.in_(list(ids)), operations.c.status.is_(None))
    database.execute(this.values(lease_until=now() + LEASE_S))


def end_operation(database: Database, id: str, status: int, location: str | None, body: str) -> None:
    """Store the answer of an operation."""
    this = operations.update().where(operations.c.id == id)
    database.execute(this.values(ended_at=now(), status=status, location=location, body=body))


def forget_operation(database: Database, id: str) -> None:
    """Remove an operation, as if it had not been requested."""
    database.execute(operations.delete().where(operations.c.id == id))


def find_operation(database: Database, id: str) -> FoundOperation | None:
    """Return an operation by its id; None if there is none, or not all of its projects are visible."""
    return _fetch_operation(database, operations.c.id == id)


def find_by_key(database: Database, key: str) -> FoundOperation | None:
    """Return an operation by its key, as `find_operation` does."""
    return _fetch_operation(database, operations.c.key == key)


def _is_running() -> sa.ColumnElement[bool]:
    return sa.and_(operations.c.status.is_(None), sa.not_(is_over(operations.c.lease_until)))


def _fetch_operation(database: Database, condition: sa.ColumnElement[bool]) -> FoundOperation | None:
    with database.read() as connection:
        row = fetch_record(connection, OperationRow, sa.select(operations).where(condition))
        if row is None or not is_within(projects_of(row.projects), database.scope.projects):
            return None
        return FoundOperation(row, _status(row, clock(connection)))


def _status(row: OperationRow, at: float) -> Status:
    if row.status is None:
        return Status.running if at < row.lease_until <= at + FARTHEST_S else Status.lost
    return Status.done if row.status < 400 else Status.failed


class Repeated(StoreError):
    """Another request with this key has changed something, so this one changes nothing. `digest` is that of the key."""

    def __init__(self, digest: str) -> None:
        super().__init__("another request with this Idempotency-Key was carried out")
        self.digest = digest


@frozen(slots=True)
class Claim:
    """A request with its key.

    Attributes:
        digest: SHA-256 of the caller and the key.
        request: SHA-256 of the content of the request.
    """

    digest: str
    request: str

    def store(self, connection: sa.Connection) -> None:
        """Store the key within the transaction of a change. Raises Repeated if it is there."""
        projects = projects_setting(scope_of(connection).projects)
        values = {"digest": self.digest, "request": self.request, "projects": projects}
        # The insert waits for a concurrent request with the same key, and decides between the two at its commit.
        statement = insert_of(connection, idempotency_keys).values(values).on_conflict_do_nothing()
        if connection.scalar(statement.returning(idempotency_keys.c.digest)) is None:
            raise Repeated(self.digest)


def find_answer(database: Database, digest: str) -> IdempotencyKeyRow | None:
    """Return the stored answer of a key; None if no request with it has changed anything."""
    query = sa.select(idempotency_keys).where(idempotency_keys.c.digest == digest)
    return database.record(IdempotencyKeyRow, query)


def forget(database: Database, row: IdempotencyKeyRow) -> None:
    """Remove a key, unless it was stored again since it was found."""
    this = idempotency_keys.c.digest == row.digest, idempotency_keys.c.created_at == row.created_at
    database.execute(idempotency_keys.delete().where(*this))


def keep_answer(database: Database, digest: str, status: int, location: str | None, body: str) -> None:
    """Store the answer to a request, for a day."""
    this = idempotency_keys.update().where(idempotency_keys.c.digest == digest)
    database.execute(this.values(status=status, location=location, body=body))
    remove_expired(database)


MOST_BYTES = 32_000_000
QUOTA_BYTES = 256_000_000  # of a project
PART_BYTES = 1_000_000


@frozen(slots=True)
class NewUpload:
    """A new upload; see `UploadRow`."""

    id: str
    project: str
    digest: str
    by: str


def begin_upload(database: Database, new: NewUpload) -> None:
    """Record that an upload begins."""
    remove_expired(database)
    database.execute(uploads.insert().values(asdict(new)))


def add_part(database: Database, new: NewUpload, number: int, content: bytes) -> None:
    """Store the next part of an upload.

    Args:
        database: The database.
        new: The upload.
        number: The number of the part, from 0.
        content: At most PART_BYTES.

    Raises:
        ConflictError: If the uploads of its project would take too much.
    """
    this = uploads.update().where(uploads.c.id == new.id).values(bytes=uploads.c.bytes + len(content))
    of_project = sa.select(sa.func.sum(uploads.c.bytes)).where(uploads.c.project == new.project)
    with database.write() as connection:
        # First, because it locks the row: parts of one upload are counted one after the other.
        connection.execute(this)
        total = int(connection.scalar(of_project) or 0)
        if total > QUOTA_BYTES:
            raise ConflictError(
                f"the uploads of project {new.project!r} would take more than {QUOTA_BYTES:,} bytes, which is the "
                "limit; each is removed after a day"
            )
        connection.execute(upload_parts.insert().values(upload_id=new.id, number=number, content=content))


def complete_upload(database: Database, new: NewUpload) -> None:
    """Make an upload findable by its digest; if its project has that content, it is kept for another day.

    The earlier upload stays, not the new one, because somebody may be reading it.
    """
    same = uploads.update().where(
        uploads.c.project == new.project, uploads.c.digest == new.digest, uploads.c.completed_at.is_not(None)
    )
    this = uploads.c.id == new.id
    with database.write() as connection:
        if connection.execute(same.values(created_at=now())).rowcount:
            connection.execute(uploads.delete().where(this))
        else:
            connection.execute(uploads.update().where(this).values(completed_at=now()))


def abandon_upload(database: Database, id: str) -> None:
    """Remove an upload that was interrupted, or whose content does not match its digest."""
    database.execute(uploads.delete().where(uploads.c.id == id, uploads.c.completed_at.is_(None)))


def find_upload(database: Database, digest: str) -> UploadRow | None:
    """Return a complete upload by its digest; None if no visible project has one."""
    query = sa.select(uploads).where(
        uploads.c.digest == digest, uploads.c.completed_at.is_not(None), uploads.c.created_at >= now() - KEPT_S
    )
    with database.read() as connection:
        return fetch_record(connection, UploadRow, query.where(*in_scope(connection, uploads)).limit(1))


def read_upload(database: Database, upload: UploadRow) -> Iterator[bytes]:
    """Yield the parts of an upload, one after the other.

    Args:
        database: The database.
        upload: The upload, from `find_upload`.

    Raises:
        ConflictError: After the last part, if the content does not match its digest because it was removed meanwhile.
    """
    hashed = hashlib.sha256()
    of_upload = upload_parts.c.upload_id == upload.id
    with database.read() as connection:
        numbers = sa.select(upload_parts.c.number).where(of_upload).order_by(upload_parts.c.number)
        for number in connection.scalars(numbers).all():
            part = sa.select(upload_parts.c.content).where(of_upload, upload_parts.c.number == number)
            content = connection.execute(part).scalar_one()
            hashed.update(content)
            yield content
    if hashed.hexdigest() != upload.digest:
        raise ConflictError(f"upload {upload.digest} was removed while it was read; send the file again")
