"""Migration 1036: what people say of cells."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.schema import now

revision = "1036"
down_revision = "1022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "labels",
        sa.Column("sweep_id", sa.String(32), sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("metric", sa.String(200), primary_key=True, comment="whose scores it is held against"),
        sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("rater", sa.String(255), primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sa.Column("asked", sa.String(16), nullable=False, comment="why it was asked for"),
        sa.Column("probability", sa.Double, comment="that its case was drawn with; null where it was not drawn here"),
        sa.Column("at", sa.Double, nullable=False, server_default=now()),
        sa.CheckConstraint("asked IN ('random', 'disagreement')", name=op.f("ck_labels_asked")),
        comment="what people say of cells",
    )
