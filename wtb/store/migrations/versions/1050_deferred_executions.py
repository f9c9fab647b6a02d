"""Migration 1050: executions that begin once others come to what differs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1050"
down_revision = "1049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "node -> its queue; of one that begins once others come to what differs"
    op.add_column("executions", sa.Column("deferred", Json, comment=comment))
    op.create_index(
        "ix_executions_deferred",
        "executions",
        ["sweep_id"],
        postgresql_where=sa.text("deferred IS NOT NULL"),
        sqlite_where=sa.text("deferred IS NOT NULL"),
    )
