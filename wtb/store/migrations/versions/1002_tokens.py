"""Migration 1002: tokens, by which people and programs may ask a server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.schema import now

revision = "1002"
down_revision = "1001"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(64), nullable=False, unique=True, comment="also of those revoked: events name it"),
        sa.Column(
            "digest", sa.String(64), nullable=False, unique=True, comment="SHA-256 of the token, which is not kept"
        ),
        sa.Column("scopes", Json, nullable=False, comment="what its holder may do, by name"),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("expires_at", sa.Double),
        sa.Column("used_at", sa.Double, comment="when it was last used, to the minute"),
        sa.Column("revoked_at", sa.Double),
    )
