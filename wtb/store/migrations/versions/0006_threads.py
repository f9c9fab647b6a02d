"""Migration 0006: threads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.sweeps import now

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "thread_writes",
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("thread_id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("namespace", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column(
            "checkpoint_id",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
            comment="that they were made from",
        ),
        sa.Column("task_id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column(
            "number", sa.Integer(), autoincrement=False, nullable=False, comment="negative: may be written again"
        ),
        sa.Column(
            "path",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
            comment="of the task: what orders writes of one step",
        ),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=True, comment="of its value"),
        sa.Column("value", sa.Text(), nullable=True, comment="the value itself, where it is short: typed JSON"),
        sa.CheckConstraint("(digest IS NULL) <> (value IS NULL)", name=op.f("ck_thread_writes_value")),
        sa.PrimaryKeyConstraint(
            "session_id", "thread_id", "namespace", "checkpoint_id", "task_id", "number", name=op.f("pk_thread_writes")
        ),
    )
    op.create_table(
        "thread_checkpoints",
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("thread_id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column(
            "namespace",
            sa.Text().with_variant(sa.Text(collation="C"), "postgresql"),
            nullable=False,
            comment="of a subgraph; empty: of the graph itself",
        ),
        sa.Column("id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False),
        sa.Column("parent_id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=True),
        sa.Column("run_id", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=True),
        sa.Column("state", Json, nullable=False, comment="channel -> digest of its value"),
        sa.Column(
            "document", sa.Text(), nullable=False, comment="typed JSON: rest of the checkpoint, and short values"
        ),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", sa.Double(), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_thread_checkpoints_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("session_id", "thread_id", "namespace", "id", name=op.f("pk_thread_checkpoints")),
    )
    op.create_index(
        "ix_thread_checkpoints_run_id",
        "thread_checkpoints",
        ["run_id"],
        unique=False,
        postgresql_where=sa.text("run_id IS NOT NULL"),
        sqlite_where=sa.text("run_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(
        "ix_thread_checkpoints_run_id",
        table_name="thread_checkpoints",
        postgresql_where=sa.text("run_id IS NOT NULL"),
        sqlite_where=sa.text("run_id IS NOT NULL"),
    )
    op.drop_table("thread_checkpoints")
    op.drop_table("thread_writes")
