"""Migration 1053: first attempts are described by their node runs, and cells that run are pending in their rows."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1053"
down_revision = "1052"
branch_labels = None
depends_on = None

_FIRST = "SELECT {} FROM attempts WHERE node_run_id = node_runs.id AND number = 1"


def upgrade() -> None:
    comment = "when the first attempt began, if this row describes it: so far, or for good"
    op.add_column("node_runs", sa.Column("begun_at", sa.Double, comment=comment))
    comment = "of that attempt: its beginning and its end, where it is long"
    op.add_column("node_runs", sa.Column("stdout", sa.Text, comment=comment))
    op.add_column("node_runs", sa.Column("stderr", sa.Text, comment="the same"))
    moved = ", ".join(
        f"{name} = ({_FIRST.format(source)})"
        for name, source in (("begun_at", "started_at"), ("stdout", "stdout"), ("stderr", "stderr"))
    )
    op.execute(f"UPDATE node_runs SET {moved} WHERE status = 'succeeded' AND attempts = 1")
    op.execute("DELETE FROM attempts WHERE node_run_id IN (SELECT id FROM node_runs WHERE begun_at IS NOT NULL)")
    op.execute("UPDATE cells SET status = 'pending' WHERE status = 'running'")
    owned = sa.text("owner_id IS NOT NULL")
    op.drop_index("ix_executions_owner_id", "executions")
    op.create_index("ix_executions_owner_id", "executions", ["owner_id"], postgresql_where=owned, sqlite_where=owned)
