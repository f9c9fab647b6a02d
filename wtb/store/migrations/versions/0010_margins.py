"""Migration 0010: margins."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
_VERDICTS = "verdict IN ('better', 'same', 'not worse', 'unclear', 'worse', 'cannot tell', 'failed')"


def upgrade() -> None:
    op.add_column(
        "baselines",
        sa.Column(
            "noise_floor",
            Json,
            nullable=True,
            comment="what repeats of the sweep differ by; null where nobody made any",
        ),
    )
    op.execute("ALTER TABLE schedules RENAME COLUMN tolerance TO margin")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("COMMENT ON COLUMN schedules.margin IS 'metric -> the loss that would matter'")
        op.execute(
            "UPDATE sweeps SET spec = (spec - 'tolerance') || jsonb_build_object('margin', spec->'tolerance') "
            "WHERE jsonb_exists(spec, 'tolerance')"
        )
        op.drop_constraint(op.f("ck_fires_verdict"), "fires")
        op.create_check_constraint(op.f("ck_fires_verdict"), "fires", _VERDICTS)
        return
    op.execute(
        "UPDATE sweeps SET spec = "
        "json_set(json_remove(spec, '$.tolerance'), '$.margin', json_extract(spec, '$.tolerance')) "
        "WHERE json_type(spec, '$.tolerance') IS NOT NULL"
    )
    _replace_fires()


def _replace_fires() -> None:
    """SQLite changes no rule of a table: one with the new rule takes its place."""
    op.drop_index("ix_fires_open", "fires")
    op.rename_table("fires", "fires_before")
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
        sa.CheckConstraint(_VERDICTS, name=op.f("ck_fires_verdict")),
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
    op.execute("INSERT INTO fires SELECT * FROM fires_before")
    op.drop_table("fires_before")


def downgrade() -> None:
    raise NotImplementedError("WTB's tables go forward only; restore a backup")
