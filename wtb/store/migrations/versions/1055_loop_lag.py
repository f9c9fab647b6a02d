"""Migration 1055: how late the event loop was while a node run was awaited."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1055"
down_revision = "1054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "how late the event loop was on average while the accepted attempt ran"
    op.add_column("node_runs", sa.Column("lag_s", sa.Double, comment=comment))
