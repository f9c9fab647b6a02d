"""Migration 1001: node runs and checkpoints have their positions in the log. Events that are there stay as they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1001"
down_revision = "1000"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "log_ids",
        sa.Column("last", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("last", name=op.f("pk_log_ids")),
        comment="the last id in the log, on SQLite; PostgreSQL has the sequence of events.id",
    )
    op.add_column(
        "checkpoints",
        sa.Column(
            "created_transaction",
            sa.BigInteger(),
            nullable=True,
            comment="where the log has that it was made; see wtb/store/log.py",
        ),
    )
    op.add_column("checkpoints", sa.Column("created_event", sa.BigInteger(), nullable=True))
    op.drop_index(op.f("ix_checkpoints_sweep_id"), table_name="checkpoints")
    op.create_index(
        "ix_checkpoints_created", "checkpoints", ["sweep_id", "created_transaction", "created_event"], unique=False
    )
    op.add_column(
        "node_runs",
        sa.Column(
            "started_transaction",
            sa.BigInteger(),
            nullable=True,
            comment="where the log has its start; see wtb/store/log.py",
        ),
    )
    op.add_column("node_runs", sa.Column("started_event", sa.BigInteger(), nullable=True))
    op.add_column(
        "node_runs",
        sa.Column("ended_transaction", sa.BigInteger(), nullable=True, comment="where the log has its success"),
    )
    op.add_column("node_runs", sa.Column("ended_event", sa.BigInteger(), nullable=True))
    op.add_column("node_runs", sa.Column("ended_at", sa.Double(), nullable=True, comment="when it succeeded"))
    op.create_index("ix_node_runs_ended", "node_runs", ["sweep_id", "ended_transaction", "ended_event"], unique=False)
    op.create_index(
        "ix_node_runs_started", "node_runs", ["sweep_id", "started_transaction", "started_event"], unique=False
    )
