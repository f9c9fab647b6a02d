"""Migration 1051: reasons of scores, and what people write about cells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1051"
down_revision = "1050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("scores", sa.Column("reason", sa.Text, comment="why it has this value, in words"))
    op.create_table(
        "comments",
        sa.Column("sweep_id", sa.String(32), sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="of the sweep, from 1"),
        sa.Column("case_number", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("combination", sa.Integer, nullable=False),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False, server_default=now()),
        comment="what people write about cells",
    )
    op.create_index("ix_comments_cell", "comments", ["sweep_id", "case_number"])
