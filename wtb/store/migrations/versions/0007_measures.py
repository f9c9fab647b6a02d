"""Migration 0007: measures."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "metrics",
        sa.Column(
            "declared", sa.Boolean(), server_default=sa.true(), nullable=False, comment="whether anybody said better"
        ),
    )
    op.add_column(
        "metrics",
        sa.Column(
            "by_median",
            sa.Boolean(),
            server_default=sa.false(),
            nullable=False,
            comment="combinations are compared by the median of their differences, else by the mean",
        ),
    )
    op.execute("UPDATE metrics SET by_median = true WHERE name = 'latency'")


def downgrade() -> None:
    raise NotImplementedError("WTB's tables go forward only; restore a backup")
