"""Migration 1046: what the node processes of each runner use of the memory quota of a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import now

revision = "1046"
down_revision = "1044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "session_memory",
        sa.Column("runner_id", sa.String(32), nullable=False),
        sa.Column("session_id", sa.String(32), nullable=False),
        sa.Column(
            "used",
            sa.BigInteger(),
            nullable=False,
            comment="bytes in the node processes of the runner that work for it",
        ),
        sa.Column(
            "largest",
            sa.BigInteger(),
            nullable=False,
            comment="of them in the largest process in which something runs",
        ),
        sa.Column("measured_at", sa.Double(), server_default=now(), nullable=False),
        sa.CheckConstraint("used >= 0 AND largest >= 0", name=op.f("ck_session_memory_sizes")),
        sa.ForeignKeyConstraint(
            ["runner_id"], ["runners.id"], name=op.f("fk_session_memory_runner_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_session_memory_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("runner_id", "session_id", name=op.f("pk_session_memory")),
    )
    op.create_index(op.f("ix_session_memory_session_id"), "session_memory", ["session_id"])
