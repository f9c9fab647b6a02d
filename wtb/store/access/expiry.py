"""What is kept for a day only: uploads, operations that take long, and answers to requests.

They are copies that spare somebody to send or to do a thing again. Whoever removes them sees those of all projects.
"""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.database import Database, Scope
from wtb.store.tables.schema import idempotency_keys, now, operations, uploads

KEPT_S = 86_400.0


def remove_expired(database: Database) -> None:
    """Remove what is older than a day; an operation stays while it is under way.

    Args:
        database: Where, whatever it is limited to.
    """
    before = now() - KEPT_S
    is_over = sa.or_(operations.c.status.is_not(None), operations.c.lease_until <= now())
    with database.within(Scope()).write() as connection:
        connection.execute(uploads.delete().where(uploads.c.created_at < before))
        connection.execute(operations.delete().where(operations.c.began_at < before, is_over))
        connection.execute(idempotency_keys.delete().where(idempotency_keys.c.created_at < before))
