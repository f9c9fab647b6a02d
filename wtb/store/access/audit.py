"""The audit log: who changed what, from where and with which token, in rows that are only ever added.

Each row has a hash over its content and the hash of the row before it, so changing, removing or moving a row changes
every hash after it. The hash of the last row is the head; a head that was published elsewhere also proves that no row
up to it was made anew or cut off. Rows are numbered without gaps, so appending takes turns, each for as long as a
commit takes. That is acceptable because only acts of people are appended.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from dataclasses import asdict

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.core.roles import BY_TOKEN
from wtb.store.bulk import equal, fetch_record
from wtb.store.database import Database
from wtb.store.tables.access import AuditRow
from wtb.store.tables.schema import audit
from wtb.store.transactions import clock

BEFORE_ALL = "0" * 64  # instead of the hash of a row before the first
PRUNE = "audit.prune"
_LOCK = 9182736457
_PART = 1000


@frozen(slots=True)
class Origin:
    """The origin of a request.

    Attributes:
        via: The command or the route.
        address: The address of the client; None for this machine.
        token: The name of the access token, if any.
    """

    via: str
    address: str | None = None
    token: str | None = None


@frozen(slots=True)
class Note:
    """A row to be appended.

    Attributes:
        call: Pairs the rows of the beginning and the end of an operation that changes something.
        by: The caller.
        origin: The origin of the request.
        operation: The operation, by its name in the registry.
        arguments: Its arguments, as JSON; None in the second row of a call.
        outcome: How it ended; None while it has not.
        result: The names of its results, as JSON.
        error: Its error, if it failed.
    """

    call: str
    by: str
    origin: Origin
    operation: str
    arguments: str | None
    outcome: str | None = None
    result: str | None = None
    error: str | None = None


@frozen(slots=True)
class Head:
    """The last row at some time, whose hash covers all rows up to it."""

    number: int
    hash: str


def append(connection: sa.Connection, note: Note) -> None:
    """Append a row within a transaction, as its last statement: others wait for its end from then on."""
    if connection.dialect.name == "postgresql":  # on SQLite every one that writes is alone
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    # Read under the lock, so that the row before is committed, and times follow the numbers.
    before = _last(connection)
    noted = asdict(note)
    origin = noted.pop("origin")
    row = AuditRow(number=before.number + 1, at=clock(connection), **origin, **noted, hash="")
    values = {column.name: getattr(row, column.name) for column in audit.columns}
    connection.execute(audit.insert().values(values | {"hash": hash_of(before.hash, row)}))


def hash_of(before: str, row: AuditRow) -> str:
    # A new column would change the hashes of all earlier rows.
    """Return the hash of a row: SHA-256 over the hash of the row before it and all columns of it, as JSON."""
    content = [getattr(row, column.name) for column in audit.columns if column.name != "hash"]
    return hashlib.sha256(json.dumps([before, *content], separators=(",", ":")).encode()).hexdigest()


def signature_of(key: str, last: Head) -> str:
    """Return the proof that the holder of a key removed all rows up to one: HMAC-SHA256 over its number and hash."""
    return hmac.new(key.encode(), f"{last.number}:{last.hash}".encode(), hashlib.sha256).hexdigest()


def is_signed(key: str, last: Head, signature: str) -> bool:
    """Return whether a signature is that of a key."""
    return hmac.compare_digest(signature_of(key, last).encode(), signature.encode())


def head(database: Database) -> Head:
    """Return the last row; of an empty log, number 0."""
    with database.read() as connection:
        return _last(connection)


def rows(database: Database) -> Iterator[AuditRow]:
    """Yield all rows, the oldest first; a part at a time."""
    last = -1
    while True:
        query = sa.select(audit).where(audit.c.number > last).order_by(audit.c.number).limit(_PART)
        part = database.records(AuditRow, query)
        yield from part
        if len(part) < _PART:
            return
        last = part[-1].number


def prunings(database: Database) -> list[AuditRow]:
    """List the rows that record prunings, the newest first."""
    query = sa.select(audit).where(audit.c.operation == PRUNE, audit.c.result.is_not(None))
    return database.records(AuditRow, query.order_by(audit.c.number.desc()))


def calls(
    database: Database,
    *,
    by: str | None = None,
    operation: str | None = None,
    token: str | None = None,
    since: float | None = None,
    before: int | None = None,
    limit: int,
) -> list[tuple[AuditRow, AuditRow | None]]:
    """List calls, the newest first, each with the row of its end if that is another one.

    Args:
        database: The database.
        by: Only calls by this caller.
        operation: Only calls of this operation.
        token: Only calls with the token of this name.
        since: Only calls at this time or later.
        before: Only calls with a smaller number.
        limit: The largest number of calls.
    """
    ended = audit.alias("ended")
    conditions = [*equal({audit.c.operation: operation, audit.c.token: token})]
    if by is not None:  # including tokens that others created for them
        conditions.append(sa.or_(audit.c.by == by, audit.c.by.startswith(f"{by}{BY_TOKEN}", autoescape=True)))
    conditions.append(audit.c.arguments.is_not(None))
    if since is not None:
        conditions.append(audit.c.at >= since)
    if before is not None:
        conditions.append(audit.c.number < before)
    same = sa.and_(ended.c.call == audit.c.call, ended.c.arguments.is_(None))
    query = sa.select(audit, ended).select_from(audit.outerjoin(ended, same)).where(*conditions)
    width = len(audit.columns)
    return [
        (AuditRow(*row[:width]), AuditRow(*row[width:]) if row[width] is not None else None)
        for row in database.tuples(query.order_by(audit.c.number.desc()).limit(limit))
    ]


def last_before(database: Database, at: float) -> Head | None:
    """Return the last row that is older than a time, if there is one that is not the last of all."""
    newest = sa.select(sa.func.max(audit.c.number)).scalar_subquery()
    query = sa.select(audit.c.number, audit.c.hash).where(audit.c.at < at, audit.c.number < newest)
    return database.record(Head, query.order_by(audit.c.number.desc()).limit(1))


def remove_up_to(connection: sa.Connection, number: int) -> int:
    """Remove all rows up to a number. Returns how many there were."""
    return connection.execute(audit.delete().where(audit.c.number <= number)).rowcount


def _last(connection: sa.Connection) -> Head:
    query = sa.select(audit.c.number, audit.c.hash).order_by(audit.c.number.desc()).limit(1)
    return fetch_record(connection, Head, query) or Head(0, BEFORE_ALL)
