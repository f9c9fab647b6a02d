"""Migration 1004: sign-ins, by which browsers may ask a server."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1004"
down_revision = "1003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sign_ins",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column(
            "digest", sa.String(64), nullable=False, unique=True, comment="SHA-256 of the cookie, which is not kept"
        ),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("source", sa.String(64), nullable=False, comment="digest of the token by which they signed in"),
        sa.Column("address", sa.String(64), comment="from where"),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("used_at", sa.Double, nullable=False, server_default=now(), comment="to the minute"),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.CheckConstraint("kind IN ('operator', 'token')", name=op.f("ck_sign_ins_kind")),
    )
