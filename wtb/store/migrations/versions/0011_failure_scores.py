"""Migration 0011: failure scores."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_MEASURED = ("latency", "cost", "tokens", "node_runs")


def upgrade() -> None:
    op.add_column(
        "metrics",
        sa.Column(
            "on_failure",
            sa.String(32),
            nullable=True,
            comment="the score of a failed cell, or left_out; else the sweep says it",
        ),
    )
    for name in _MEASURED:
        op.execute(f"UPDATE metrics SET on_failure = 'left_out' WHERE name = '{name}'")


def downgrade() -> None:
    raise NotImplementedError("WTB's tables go forward only; restore a backup")
