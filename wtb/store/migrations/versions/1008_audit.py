"""Migration 1008: the audit log, of who changed what."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1008"
down_revision = "1007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False, comment="without gaps"),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column(
            "call", sa.String(32), nullable=False, comment="of the row that it began with and the one of its end"
        ),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("via", sa.String(255), nullable=False, comment="command or route"),
        sa.Column("address", sa.String(64), comment="from where; null: this machine"),
        sa.Column("token", sa.String(64), comment="name of the token"),
        sa.Column("operation", sa.String(64), nullable=False),
        sa.Column("arguments", sa.Text, comment="JSON; null in the second row of a call"),
        sa.Column("outcome", sa.String(8), comment="null: it has begun to change something"),
        sa.Column("result", sa.Text, comment="JSON: what names it, such as an id"),
        sa.Column("error", sa.Text),
        sa.Column("hash", sa.String(64), nullable=False, comment="of this row and the hash of the one before"),
        sa.CheckConstraint("outcome IN ('done', 'failed')", name=op.f("ck_audit_outcome")),
        sa.CheckConstraint("arguments IS NOT NULL OR outcome IS NOT NULL", name=op.f("ck_audit_arguments")),
        comment="who changed what; rows are only added, but for the oldest, which may be pruned",
    )
    op.create_index(op.f("ix_audit_call"), "audit", ["call"], unique=False)
