"""Migration 1023: executions have the position of their end in the log. Events that are there stay as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1023"
down_revision = "1036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "where the log has its end and those of its cells"
    op.add_column("executions", sa.Column("ended_transaction", sa.BigInteger(), nullable=True, comment=comment))
    last = "the last of these; see wtb/store/log.py"
    op.add_column("executions", sa.Column("ended_event", sa.BigInteger(), nullable=True, comment=last))
    op.drop_index("ix_executions_sweep_id_status_id", table_name="executions")
    is_open = sa.text("status IN ('pending', 'running', 'waiting', 'paused')")
    op.create_index(
        "ix_executions_open",
        "executions",
        ["sweep_id", "status", "id"],
        unique=False,
        postgresql_where=is_open,
        sqlite_where=is_open,
    )
    op.create_index("ix_executions_ended", "executions", ["sweep_id", "ended_transaction", "ended_event"], unique=False)
