"""The table of who may ask a server: tokens."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.tables.column_types import Id, Json, Seconds, metadata, now

tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True, comment="also of those revoked: events name it"),
    sa.Column("digest", sa.String(64), nullable=False, unique=True, comment="SHA-256 of the token, which is not kept"),
    sa.Column("scopes", Json, nullable=False, comment="what its holder may do, by name"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("created_by", sa.String(200), nullable=False),
    sa.Column("expires_at", Seconds),
    sa.Column("used_at", Seconds, comment="when it was last used, to the minute"),
    sa.Column("revoked_at", Seconds),
)
