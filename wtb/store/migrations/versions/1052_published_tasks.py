"""Migration 1052: pending executions are published as tasks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from wtb.store.tables.column_types import Json

revision = "1052"
down_revision = "1051"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("executions", sa.Column("task_id", sa.String(32)))
    op.add_column("executions", sa.Column("task_token", sa.BigInteger))
    op.add_column("executions", sa.Column("published_at", sa.Double))
    published = sa.text("status = 'pending' AND task_token = token")
    op.create_index(
        "ix_executions_published", "executions", ["task_id"], postgresql_where=published, sqlite_where=published
    )
    op.add_column("scorings", sa.Column("published_at", sa.Double))
    op.add_column("sweeps", sa.Column("root_s", sa.Double))
    op.add_column("runners", sa.Column("refused", Json))
