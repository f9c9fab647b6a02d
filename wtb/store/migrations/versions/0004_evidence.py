"""Migration 0004: evidence."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.sweeps import now

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("file", sa.Text(), nullable=False, comment="absolute path of the sweep file"),
        sa.Column("folder", sa.Text(), nullable=False, comment="where its fires start"),
        sa.Column("cron", sa.String(length=200), nullable=False),
        sa.Column("tz", sa.String(length=100), nullable=False),
        sa.Column("missed", sa.String(length=8), nullable=False),
        sa.Column("queued", sa.Boolean(), nullable=False, comment="workers run its sweeps"),
        sa.Column("baseline", sa.String(length=200), nullable=True, comment="the name of one, or `last`"),
        sa.Column("tolerance", Json, nullable=False, comment="metric -> how much worse it may be"),
        sa.Column("notify", Json, nullable=False, comment="whom to tell"),
        sa.Column("next_at", sa.Double(), nullable=True, comment="its next fire; null while it is paused"),
        sa.Column("created_at", sa.Double(), server_default=now(), nullable=False),
        sa.CheckConstraint("missed IN ('skip', 'once')", name=op.f("ck_schedules_missed")),
        sa.CheckConstraint("status IN ('active', 'paused')", name=op.f("ck_schedules_status")),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_schedules_session_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schedules")),
        sa.UniqueConstraint("name", name=op.f("uq_schedules_name")),
    )
    op.create_index(
        "ix_schedules_next_at",
        "schedules",
        ["next_at"],
        unique=False,
        postgresql_where=sa.text("status = 'active'"),
        sqlite_where=sa.text("status = 'active'"),
    )
    op.create_index(op.f("ix_schedules_session_id"), "schedules", ["session_id"], unique=False)
    op.create_table(
        "baselines",
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False, comment="not removed while it is"),
        sa.Column("set_at", sa.Double(), server_default=now(), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["sessions.id"], name=op.f("fk_baselines_session_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_baselines_sweep_id")),
        sa.PrimaryKeyConstraint("session_id", "name", name=op.f("pk_baselines")),
    )
    op.create_index(op.f("ix_baselines_sweep_id"), "baselines", ["sweep_id"], unique=False)
    op.create_table(
        "fires",
        sa.Column("schedule_id", sa.String(length=32), nullable=False),
        sa.Column("fire_at", sa.Double(), nullable=False, comment="when it was due"),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("manual", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column(
            "lease_until",
            sa.Double(),
            nullable=True,
            comment="held until then; of one at its end: somebody is to be told",
        ),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "sweep_id", sa.String(length=32), nullable=True, comment="its sweep, set in the transaction that submits it"
        ),
        sa.Column("baseline_id", sa.String(length=32), nullable=True, comment="the sweep that it was compared with"),
        sa.Column("verdict", sa.String(length=16), nullable=True),
        sa.Column("why", Json, nullable=True, comment="sentences"),
        sa.Column("notified_at", sa.Double(), nullable=True),
        sa.Column("notify_tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("notify_error", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "status IN ('due', 'starting', 'running', 'judged', 'failed')", name=op.f("ck_fires_status")
        ),
        sa.CheckConstraint(
            "verdict IN ('better', 'same', 'unclear', 'worse', 'cannot tell', 'failed')", name=op.f("ck_fires_verdict")
        ),
        sa.ForeignKeyConstraint(
            ["schedule_id"], ["schedules.id"], name=op.f("fk_fires_schedule_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("schedule_id", "fire_at", name=op.f("pk_fires")),
        sa.UniqueConstraint("sweep_id", name=op.f("uq_fires_sweep_id")),
    )
    op.create_index(
        "ix_fires_open",
        "fires",
        ["status"],
        unique=False,
        postgresql_where=sa.text("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL"),
        sqlite_where=sa.text("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL"),
    )
    op.create_index(
        "ix_executions_begun",
        "executions",
        ["sweep_id", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'pending' AND head_id IS NOT NULL"),
        sqlite_where=sa.text("status = 'pending' AND head_id IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index(
        "ix_executions_begun",
        table_name="executions",
        postgresql_where=sa.text("status = 'pending' AND head_id IS NOT NULL"),
        sqlite_where=sa.text("status = 'pending' AND head_id IS NOT NULL"),
    )
    op.drop_index(
        "ix_fires_open",
        table_name="fires",
        postgresql_where=sa.text("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL"),
        sqlite_where=sa.text("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL"),
    )
    op.drop_table("fires")
    op.drop_index(op.f("ix_baselines_sweep_id"), table_name="baselines")
    op.drop_table("baselines")
    op.drop_index(op.f("ix_schedules_session_id"), table_name="schedules")
    op.drop_index(
        "ix_schedules_next_at",
        table_name="schedules",
        postgresql_where=sa.text("status = 'active'"),
        sqlite_where=sa.text("status = 'active'"),
    )
    op.drop_table("schedules")
