"""Keys by which requests that change something are known again, with what was answered.

A key is stored in the transaction of the first change that its request makes: neither is there without the other, and
of several requests with one key, to however many servers, one changes something.
"""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import StoreError
from wtb.store.access.expiry import remove_expired
from wtb.store.access.scope import scope_of
from wtb.store.bulk import insert_of
from wtb.store.database import Database
from wtb.store.tables.access import IdempotencyKeyRow
from wtb.store.tables.schema import idempotency_keys
from wtb.store.tables.walls import projects_setting


class Repeated(StoreError):
    """Another request with this key has changed something: this one changes nothing. digest: that of the key."""

    def __init__(self, digest: str) -> None:
        super().__init__("another request with this Idempotency-Key was carried out")
        self.digest = digest


@frozen(slots=True)
class Claim:
    """A request and its key.

    Attributes:
        digest: SHA-256 of who asks and the key.
        request: SHA-256 of what is asked for.
    """

    digest: str
    request: str

    def store(self, connection: sa.Connection) -> None:
        """Store the key within the transaction of a change. Raises Repeated if it is there."""
        projects = projects_setting(scope_of(connection).projects)
        values = {"digest": self.digest, "request": self.request, "projects": projects}
        statement = insert_of(connection, idempotency_keys).values(values).on_conflict_do_nothing()
        if connection.scalar(statement.returning(idempotency_keys.c.digest)) is None:
            raise Repeated(self.digest)


def find_answer(database: Database, digest: str) -> IdempotencyKeyRow | None:
    """Return what is kept of a key; None if no request with it has changed anything."""
    query = sa.select(idempotency_keys).where(idempotency_keys.c.digest == digest)
    return database.record(IdempotencyKeyRow, query)


def forget(database: Database, row: IdempotencyKeyRow) -> None:
    """Remove a key, unless it was stored again since it was found."""
    this = idempotency_keys.c.digest == row.digest, idempotency_keys.c.created_at == row.created_at
    database.execute(idempotency_keys.delete().where(*this))


def keep_answer(database: Database, digest: str, status: int, location: str | None, body: str) -> None:
    """Keep what a request was answered, for a day."""
    this = idempotency_keys.update().where(idempotency_keys.c.digest == digest)
    database.execute(this.values(status=status, location=location, body=body))
    remove_expired(database)
