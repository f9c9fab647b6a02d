"""Migration 0002: isolation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "files",
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column(
            "digest",
            sa.String(length=64),
            nullable=False,
            comment="of a content or manifest that its snapshots refer to",
        ),
        sa.Column("size", sa.BigInteger(), nullable=False, comment="bytes"),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_files_session_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("session_id", "digest", name=op.f("pk_files")),
    )
    op.create_index("ix_files_digest", "files", ["digest"], unique=False)
    op.add_column(
        "attempts", sa.Column("stdout", sa.Text(), nullable=True, comment="its beginning and its end, where it is long")
    )
    op.add_column("attempts", sa.Column("stderr", sa.Text(), nullable=True, comment="the same"))
    op.add_column(
        "checkpoints",
        sa.Column("pinned", sa.Boolean(), server_default=sa.false(), nullable=False, comment="retention keeps it"),
    )
    op.add_column(
        "runners",
        sa.Column(
            "session_id",
            sa.String(length=32),
            nullable=True,
            comment="whose slots it takes; null where it serves any session",
        ),
    )
    op.add_column(
        "runners", sa.Column("slots", sa.Integer(), server_default="0", nullable=False, comment="node runs at a time")
    )
    op.add_column("runners", sa.Column("seen_at", sa.Double(), nullable=True, comment="its last heartbeat"))
    op.add_column(
        "runners", sa.Column("ended_at", sa.Double(), nullable=True, comment="null while it runs, or where it died")
    )
    op.create_index("ix_runners_session_id", "runners", ["session_id"], unique=False)
    op.add_column(
        "sessions",
        sa.Column(
            "deleted_usd", sa.Double(), server_default="0", nullable=False, comment="spent by sweeps deleted since"
        ),
    )
    op.add_column(
        "sweeps",
        sa.Column("pinned", sa.Boolean(), server_default=sa.false(), nullable=False, comment="retention keeps it"),
    )
    op.add_column(
        "sweeps",
        sa.Column(
            "collected_usd", sa.Double(), server_default="0", nullable=False, comment="of attempts collected since"
        ),
    )
    op.add_column("sweeps", sa.Column("collected_node_runs", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    op.drop_column("sweeps", "collected_node_runs")
    op.drop_column("sweeps", "collected_usd")
    op.drop_column("sweeps", "pinned")
    op.drop_column("sessions", "deleted_usd")
    op.drop_index("ix_runners_session_id", table_name="runners")
    op.drop_column("runners", "ended_at")
    op.drop_column("runners", "seen_at")
    op.drop_column("runners", "slots")
    op.drop_column("runners", "session_id")
    op.drop_column("checkpoints", "pinned")
    op.drop_column("attempts", "stderr")
    op.drop_column("attempts", "stdout")
    op.drop_index("ix_files_digest", table_name="files")
    op.drop_table("files")
