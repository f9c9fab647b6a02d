"""Migration 1042: the fixed reference of a baseline, and the nights that were compared with it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1042"
down_revision = "1041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "baselines",
        sa.Column("reference_id", sa.String(32), comment="the sweep that was set by hand; null where it is still it"),
    )
    op.add_column(
        "baselines", sa.Column("nights", Json, comment="sweeps that were compared with it since, the oldest first")
    )
    op.create_index("ix_baselines_reference_id", "baselines", ["reference_id"])
