"""Sign-ins: browsers that somebody asks a server from. What a browser sends is known to it alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.ids import new_id
from wtb.store.access.tokens import USED_S, is_active
from wtb.store.bulk import fetch_record
from wtb.store.database import Database
from wtb.store.tables.access import SignInRow, TokenRow
from wtb.store.tables.column_types import is_ahead
from wtb.store.tables.schema import now, sign_ins, tokens
from wtb.store.transactions import clock

MOST_S = 14 * 86_400.0  # whatever they do meanwhile, people sign in again
OF_PROVIDER_S = 12 * 3600.0  # and sooner where a provider may have thought better of it meanwhile
IDLE_S = 86_400.0

_OF_TOKEN = sign_ins.outerjoin(tokens, tokens.c.digest == sign_ins.c.source)
# One that was stored or used while the clock was ahead would outlive its time.
_IS_LASTING = sa.and_(
    sign_ins.c.expires_at > now(),
    sign_ins.c.used_at > now() - IDLE_S,
    sa.not_(is_ahead(sign_ins.c.created_at)),
    sa.not_(is_ahead(sign_ins.c.used_at)),
)
_IS_ACTIVE = sa.and_(_IS_LASTING, sa.or_(sign_ins.c.kind != "token", is_active()))


@frozen(slots=True)
class NewSignIn:
    """A sign-in that is to be stored.

    Attributes:
        kind: Whose it is: the server's `operator`'s, of whoever has a `token`, or of whom a `provider` knows.
        digest: Of what the browser sends.
        source: Digest of the token by which they signed in, and the sign-in is of no more use than that; or of whom
            the provider knows.
        address: From where.
        name: What events call whom a provider knows.
        scopes: What they may do.
    """

    kind: str
    digest: str
    source: str
    address: str | None = None
    name: str | None = None
    scopes: Sequence[str] | None = None


def add_sign_in(database: Database, new: NewSignIn) -> SignInRow:
    """Store a sign-in, and remove those that are past.

    Args:
        database: Where.
        new: What is to be stored.

    Returns:
        What was stored.
    """
    lasts_s = OF_PROVIDER_S if new.kind == "provider" else MOST_S
    values = asdict(new) | {"id": new_id(), "expires_at": now() + lasts_s}
    query = sign_ins.insert().values(values).returning(sign_ins)
    with database.write() as connection:
        connection.execute(sign_ins.delete().where(sa.not_(_IS_LASTING)))
        found = fetch_record(connection, SignInRow, query)
    assert found is not None
    return found


def use_sign_in(database: Database, digest: str) -> tuple[SignInRow, TokenRow | None] | None:
    """Find an active sign-in, and note that it was used.

    Returns:
        It with its token, if it is of one; None if there is none.
    """
    query = sa.select(sign_ins).select_from(_OF_TOKEN).where(sign_ins.c.digest == digest, _IS_ACTIVE)
    with database.read() as connection:
        row = fetch_record(connection, SignInRow, query)
        if row is None:
            return None
        token = fetch_record(connection, TokenRow, sa.select(tokens).where(tokens.c.digest == row.source))
        at = clock(connection)
    if not at - USED_S <= row.used_at <= at:
        database.execute(sign_ins.update().where(sign_ins.c.id == row.id).values(used_at=now()))
    return row, token


def end_sign_in(database: Database, digest: str) -> None:
    """Let a sign-in be of no more use, if there is one."""
    database.execute(sign_ins.delete().where(sign_ins.c.digest == digest))


def active_sign_ins(database: Database, digests: Collection[str]) -> set[str]:
    """Return those of some digests whose sign-ins are active."""
    query = sa.select(sign_ins.c.digest).select_from(_OF_TOKEN)
    return set(database.scalars(query.where(sign_ins.c.digest.in_(list(digests)), _IS_ACTIVE)))
