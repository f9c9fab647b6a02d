"""Migration 1011: keys by which requests that change something are known again, with what was answered."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1011"
down_revision = "1010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("digest", sa.String(64), primary_key=True, comment="SHA-256 of who asks and the key"),
        sa.Column("request", sa.String(64), nullable=False, comment="SHA-256 of what was asked for"),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("status", sa.Integer, comment="of the answer; null until there is one"),
        sa.Column("location", sa.String(500)),
        sa.Column("body", sa.Text, comment="of the answer, JSON"),
        sa.CheckConstraint("(status IS NULL) = (body IS NULL)", name=op.f("ck_idempotency_keys_answer")),
    )
    op.create_index("ix_idempotency_keys_created", "idempotency_keys", ["created_at"])
