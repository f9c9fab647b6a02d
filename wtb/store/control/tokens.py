"""Tokens: who may ask a server for what. The token itself is known to its holder alone."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from wtb.core.errors import ConflictError, NotFound, did_you_mean
from wtb.core.ids import new_id
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.rows import TokenRow
from wtb.store.tables.schema import now, tokens

_USED_S = 60  # how exactly it is kept when a token was used: a write for each request would be too much


def is_active() -> sa.ColumnElement[bool]:
    """The condition that a token was neither revoked nor has expired."""
    return sa.and_(tokens.c.revoked_at.is_(None), sa.or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now()))


def create_token(
    database: Database, name: str, digest: str, scopes: Sequence[str], by: str, expires_s: float | None
) -> TokenRow:
    """Store a token by its digest. Raises ConflictError where there is, or was, one of this name."""
    expires_at = None if expires_s is None else now() + expires_s
    given = {"id": new_id(), "name": name, "digest": digest, "scopes": list(scopes), "created_by": by}
    query = tokens.insert().values(given | {"expires_at": expires_at}).returning(tokens)
    try:
        with database.write() as connection:
            return fetch_records(connection, TokenRow, query)[0]
    except IntegrityError:
        raise ConflictError(f"there is, or was, a token {name!r}; choose another name") from None


def list_tokens(database: Database) -> list[TokenRow]:
    """List all tokens, the newest first."""
    return database.records(TokenRow, sa.select(tokens).order_by(tokens.c.created_at.desc(), tokens.c.id))


def revoke_token(database: Database, name: str) -> TokenRow:
    """Let a token be of no more use, if it still is. Raises NotFound where there is none of this name."""
    with database.write() as connection:
        query = tokens.update().where(tokens.c.name == name)
        query = query.values(revoked_at=sa.func.coalesce(tokens.c.revoked_at, now()))
        for row in fetch_records(connection, TokenRow, query.returning(tokens)):
            return row
        near = did_you_mean(name, connection.scalars(sa.select(tokens.c.name).limit(1000)))
        raise NotFound(f"there is no token {name!r}{near}; `wtb token list` shows all")


def use_token(database: Database, digest: str) -> TokenRow | None:
    """Return the token with a digest, if it is active, and note that it was used."""
    row = database.record(TokenRow, sa.select(tokens).where(tokens.c.digest == digest, is_active()))
    if row is not None and (row.used_at is None or row.used_at < time.time() - _USED_S):
        database.execute(tokens.update().where(tokens.c.id == row.id).values(used_at=now()))
    return row


def active_digests(database: Database, digests: Collection[str]) -> set[str]:
    """Return those of some digests whose tokens are active."""
    query = sa.select(tokens.c.digest).where(tokens.c.digest.in_(list(digests)), is_active())
    with database.read() as connection:
        return set(connection.scalars(query))
