"""Tokens: who may ask a server for what. The token itself is known to its holder alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, NotFound, did_you_mean
from wtb.core.ids import new_id
from wtb.store.access.projects import check_project
from wtb.store.access.scope import in_scope
from wtb.store.bulk import fetch_record, fetch_records
from wtb.store.database import Database
from wtb.store.tables.access import TokenRow
from wtb.store.tables.column_types import is_ahead
from wtb.store.tables.schema import now, tokens, users
from wtb.store.transactions import clock

USED_S = 60  # how exactly it is kept when a token was used: a write for each request would be too much


def is_active() -> sa.ColumnElement[bool]:
    """Return the condition that a token was neither revoked nor has expired."""
    return sa.and_(tokens.c.revoked_at.is_(None), sa.not_(_has_expired()))


def _has_expired() -> sa.ColumnElement[bool]:
    """Return the condition that the time of a token is up.

    A token that was created while the clock was ahead would outlive its time: if it has one, it is up.
    """
    is_up = sa.or_(tokens.c.expires_at <= now(), is_ahead(tokens.c.created_at))
    return sa.and_(tokens.c.expires_at.is_not(None), is_up)


@frozen
class NewToken:
    """A token to be stored.

    Attributes:
        digest: SHA-256 of it, in hexadecimal digits.
        scopes: What its holder may do.
        project: Where; None for everywhere.
        user: Whose roles bound it; None for nobody's.
        expires_s: Seconds until it is of no more use; None for never.
    """

    name: str
    digest: str
    scopes: Sequence[str]
    by: str
    project: str | None = None
    user: str | None = None
    expires_s: float | None = None


def create_token(database: Database, new: NewToken, also: Callable[[sa.Connection], None]) -> TokenRow:
    """Store a token by its digest.

    Args:
        database: Where.
        new: The token.
        also: Writes more in the same transaction.

    Raises:
        NotFound: If there is no such project or user.
        ConflictError: If there is, or was, a token of this name.
    """
    name, project = new.name, new.project
    expires_at = None if new.expires_s is None else now() + new.expires_s
    query = (
        tokens.insert()
        .values(
            id=new_id(),
            name=name,
            digest=new.digest,
            scopes=list(new.scopes),
            created_by=new.by,
            expires_at=expires_at,
            project=project,
            user=new.user,
        )
        .returning(tokens)
    )
    try:
        with database.write() as connection:
            if project is not None:
                check_project(connection, project)
            if new.user is not None:
                _check_user(connection, new.user)
            (row,) = fetch_records(connection, TokenRow, query)
            also(connection)
            return row
    except IntegrityError:
        raise ConflictError(f"there is, or was, a token {name!r}; choose another name") from None


def list_tokens(database: Database) -> list[TokenRow]:
    """List all tokens, the newest first."""
    return database.records(
        TokenRow, sa.select(tokens).where(*in_scope(database, tokens)).order_by(tokens.c.created_at.desc(), tokens.c.id)
    )


def expired_tokens(database: Database) -> frozenset[str]:
    """Return the ids of the tokens whose time is up, by the database's clock."""
    return frozenset(database.scalars(sa.select(tokens.c.id).where(_has_expired(), *in_scope(database, tokens))))


def revoke_token(database: Database, name: str) -> TokenRow:
    """Let a token be of no more use, if it still is. Raises NotFound where there is none of this name."""
    with database.write() as connection:
        query = tokens.update().where(tokens.c.name == name, *in_scope(connection, tokens))
        query = query.values(revoked_at=sa.func.coalesce(tokens.c.revoked_at, now()))
        for row in fetch_records(connection, TokenRow, query.returning(tokens)):
            return row
        raise _no_token(connection, name)


def check_token(connection: sa.Connection, name: str) -> None:
    """Raises NotFound where there is no token of this name."""
    if connection.scalar(sa.select(tokens.c.id).where(tokens.c.name == name, *in_scope(connection, tokens))) is None:
        raise _no_token(connection, name)


def _check_user(connection: sa.Connection, name: str) -> None:
    if connection.scalar(sa.select(users.c.name).where(users.c.name == name)) is None:
        raise NotFound(f"there is no user {name!r}; `wtb user list` shows all", kind="user")


def _no_token(connection: sa.Connection, name: str) -> NotFound:
    near = did_you_mean(
        name, connection.scalars(sa.select(tokens.c.name).where(*in_scope(connection, tokens)).limit(1000))
    )
    return NotFound(f"there is no token {name!r}{near}; `wtb token list` shows all", kind="token")


def use_token(database: Database, digest: str) -> TokenRow | None:
    """Return the token with a digest, if it is active, and note that it was used."""
    with database.read() as connection:
        row = fetch_record(connection, TokenRow, sa.select(tokens).where(tokens.c.digest == digest, is_active()))
        at = clock(connection)
    if row is not None and (row.used_at is None or not at - USED_S <= row.used_at <= at):
        database.execute(tokens.update().where(tokens.c.id == row.id).values(used_at=now()))
    return row


def active_digests(database: Database, digests: Collection[str]) -> set[str]:
    """Return those of some digests whose tokens are active."""
    query = sa.select(tokens.c.digest).where(tokens.c.digest.in_(list(digests)), is_active())
    with database.read() as connection:
        return set(connection.scalars(query))
