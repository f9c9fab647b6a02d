"""Migration 0009: scales."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_PASS_OR_FAIL = ("exact_match", "contains", "regex", "numeric_close", "json_schema")


def upgrade() -> None:
    op.add_column(
        "metrics", sa.Column("low", sa.Double(), nullable=True, comment="the ends of the scale that was declared")
    )
    op.add_column("metrics", sa.Column("high", sa.Double(), nullable=True))
    for name in _PASS_OR_FAIL:
        op.execute(f"UPDATE metrics SET low = 0, high = 1 WHERE name = '{name}' OR name LIKE '{name}:%'")


def downgrade() -> None:
    raise NotImplementedError("WTB's tables go forward only; restore a backup")
