"""Migration 1047: sweeps that were extended, and combinations that were stopped."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1047"
down_revision = "1046"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "looks", sa.Column("extended_id", sa.String(32), comment="the sweep that this look was before its extension")
    )
    op.add_column("combinations", sa.Column("stopped", Json, comment="by, reason, at: its open cells were skipped"))
    op.create_index(
        "ix_combinations_stopped",
        "combinations",
        ["sweep_id"],
        postgresql_where=sa.text("stopped IS NOT NULL"),
        sqlite_where=sa.text("stopped IS NOT NULL"),
    )
