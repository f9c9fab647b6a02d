"""Migration 1039: what workers are asked to score again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.schema import now

revision = "1039"
down_revision = "1038"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scorings",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("sweep_id", sa.String(32), sa.ForeignKey("sweeps.id", ondelete="CASCADE"), nullable=False),
        sa.Column(
            "evaluators",
            sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql"),
            nullable=False,
            comment="as in a sweep file",
        ),
        sa.Column(
            "queue", sa.String(200), nullable=False, comment="of the workers that may do it; empty: the default one"
        ),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("status", sa.String(10), nullable=False, server_default="pending"),
        sa.Column("owner_id", sa.String(32), comment="the runner that does it"),
        sa.Column("lease_until", sa.Double),
        sa.Column("token", sa.Integer, nullable=False, server_default="0", comment="grows with each claim"),
        sa.Column(
            "scores",
            sa.BigInteger,
            nullable=False,
            server_default="0",
            comment="that were written since it was claimed",
        ),
        sa.Column(
            "unjudged",
            sa.BigInteger,
            nullable=False,
            server_default="0",
            comment="executions that judges may cost no more",
        ),
        sa.Column("reason", sa.Text, comment="why some are left, or why it failed or was cancelled"),
        sa.Column("ended_at", sa.Double),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')", name=op.f("ck_scorings_status")
        ),
        sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name=op.f("ck_scorings_owner")),
        sa.CheckConstraint("(owner_id IS NULL) = (lease_until IS NULL)", name=op.f("ck_scorings_lease")),
        comment="what workers are asked to score again",
    )
    op.create_index("ix_scorings_sweep_id", "scorings", ["sweep_id"])
    is_open = sa.text("status IN ('pending', 'running')")
    op.create_index("ix_scorings_open", "scorings", ["queue"], postgresql_where=is_open, sqlite_where=is_open)
