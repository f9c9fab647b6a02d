"""Migration 1014: of which projects an answer may tell that is kept for a request, so that it can be erased."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1014"
down_revision = "1013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    comment = "of which its answer may tell, as wtb.projects says them"
    op.add_column(
        "idempotency_keys", sa.Column("projects", sa.Text, nullable=False, server_default="*", comment=comment)
    )
