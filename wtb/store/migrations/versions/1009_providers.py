"""Migration 1009: sign-ins of whom a provider knows. Those that there are end: SQLite cannot change a CHECK."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.schema import now

revision = "1009"
down_revision = "1008"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.drop_table("sign_ins")
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "digest", sa.String(64), nullable=False, unique=True, comment="SHA-256 of the cookie, which is not kept"
        ),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column(
            "source", sa.String(64), nullable=False, comment="digest of their token, or of whom a provider knows"
        ),
        sa.Column("name", sa.String(200), comment="of whom a provider knows"),
        sa.Column("scopes", Json, comment="what they may do"),
        sa.Column("address", sa.String(64), comment="from where"),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("used_at", sa.Double, nullable=False, server_default=now(), comment="to the minute"),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.CheckConstraint("kind IN ('operator', 'token', 'provider')", name=op.f("ck_sign_ins_kind")),
        sa.CheckConstraint(
            "(kind = 'provider') = (name IS NOT NULL AND scopes IS NOT NULL)", name=op.f("ck_sign_ins_name")
        ),
    )
