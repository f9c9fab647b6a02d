"""Migration 0008: clusters of cases."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "cases",
        sa.Column("cluster", sa.Text(), comment="what it came from with others, which are not independent of it"),
    )


def downgrade() -> None:
    raise NotImplementedError("WTB's tables go forward only; restore a backup")
