"""Migration 0005: controls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.sweeps import now

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column(
            "key", sa.String(length=420), nullable=False, comment="id of the session or sweep, name of the project"
        ),
        sa.Column(
            "node", sa.String(length=200), server_default="", nullable=False, comment="of a sweep; empty: all of it"
        ),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("most", sa.Double(), nullable=False),
        sa.Column("spent", sa.Double(), server_default="0", nullable=False),
        sa.Column(
            "warned", sa.Double(), server_default="0", nullable=False, comment="share of it that was warned of last"
        ),
        sa.CheckConstraint("kind IN ('usd', 'tokens', 'node_runs')", name=op.f("ck_budgets_kind")),
        sa.CheckConstraint("scope IN ('session', 'project', 'sweep')", name=op.f("ck_budgets_scope")),
        sa.PrimaryKeyConstraint("scope", "key", "node", "kind", name=op.f("pk_budgets")),
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(length=32), nullable=False, comment="of an attempt of a node run"),
        sa.Column("scope", sa.String(length=8), nullable=False),
        sa.Column("key", sa.String(length=420), nullable=False),
        sa.Column("node", sa.String(length=200), server_default="", nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("amount", sa.Double(), nullable=False),
        sa.Column("alone", sa.Boolean(), nullable=False, comment="nobody can tell its cost: no other begins beside it"),
        sa.Column("execution_id", sa.String(length=32), nullable=False),
        sa.Column("runner_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["scope", "key", "node", "kind"],
            ["budgets.scope", "budgets.key", "budgets.node", "budgets.kind"],
            name=op.f("fk_reservations_scope"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", "scope", "key", "node", "kind", name=op.f("pk_reservations")),
        comment="what node runs that are under way may still spend of a budget",
    )
    op.create_index(op.f("ix_reservations_runner_id"), "reservations", ["runner_id"], unique=False)
    op.create_table(
        "alerts",
        sa.Column("event_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("target", sa.Integer(), autoincrement=False, nullable=False, comment="place in the sweep's `notify`"),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.Double(), server_default=now(), nullable=False),
        sa.Column("sent_at", sa.Double(), nullable=True),
        sa.Column("tries", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "lease_until", sa.Double(), nullable=True, comment="somebody is telling of it, or waits to try again"
        ),
        sa.Column("error", sa.Text(), nullable=True, comment="why it could not be told when it was tried last"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_alerts_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("event_id", "target", name=op.f("pk_alerts")),
        comment="events that somebody is to be told of",
    )
    op.create_index(
        "ix_alerts_open",
        "alerts",
        ["sweep_id"],
        unique=False,
        postgresql_where=sa.text("sent_at IS NULL"),
        sqlite_where=sa.text("sent_at IS NULL"),
    )
    op.create_index(op.f("ix_alerts_sweep_id"), "alerts", ["sweep_id"], unique=False)
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=32), nullable=False),
        sa.Column(
            "key",
            sa.String(length=64),
            nullable=False,
            comment="of the question: one answer serves all that ask it here",
        ),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("node", sa.String(length=200), nullable=True, comment="that asks, or that comes next"),
        sa.Column("number", sa.Integer(), nullable=False, comment="of questions of its node run, or attempts so far"),
        sa.Column("question", sa.Text(), nullable=False),
        sa.Column("options", Json, nullable=True, comment="texts to choose from"),
        sa.Column("context", sa.Text(), nullable=True, comment="typed JSON: what to look at"),
        sa.Column("default", Json, nullable=True, comment="the answer when time is up; null where there is none"),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("answer", Json, nullable=True, comment="action, choice, feedback, set (key -> digest)"),
        sa.Column("answered_by", sa.String(length=255), nullable=True),
        sa.Column("asked_at", sa.Double(), server_default=now(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("answered_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "(status IN ('answered', 'expired')) = (answer IS NOT NULL)", name=op.f("ck_approvals_answer")
        ),
        sa.CheckConstraint("kind IN ('ask', 'before', 'after', 'error', 'action')", name=op.f("ck_approvals_kind")),
        sa.CheckConstraint("status IN ('open', 'answered', 'expired', 'withdrawn')", name=op.f("ck_approvals_status")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_approvals_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
        sa.UniqueConstraint("checkpoint_id", "key", name=op.f("uq_approvals_checkpoint_id_key")),
    )
    op.create_index(
        "ix_approvals_open",
        "approvals",
        ["expires_at"],
        unique=False,
        postgresql_where=sa.text("status = 'open'"),
        sqlite_where=sa.text("status = 'open'"),
    )
    op.create_index(op.f("ix_approvals_sweep_id"), "approvals", ["sweep_id"], unique=False)
    op.create_table(
        "awaiting",
        sa.Column("approval_id", sa.String(length=32), nullable=False),
        sa.Column("execution_id", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("fk_awaiting_approval_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["executions.id"], name=op.f("fk_awaiting_execution_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("approval_id", "execution_id", name=op.f("pk_awaiting")),
        comment="executions that wait for an answer",
    )
    op.create_index(op.f("ix_awaiting_execution_id"), "awaiting", ["execution_id"], unique=False)
    op.create_table(
        "rollbacks",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("execution_id", sa.String(length=32), nullable=False),
        sa.Column("from_id", sa.String(length=32), nullable=False, comment="the head of the line that was left"),
        sa.Column("to_id", sa.String(length=32), nullable=False, comment="the checkpoint that was asked for"),
        sa.Column("head_id", sa.String(length=32), nullable=False, comment="the new head, a child of it"),
        sa.Column("status", sa.String(length=16), nullable=False, comment="what the execution was before"),
        sa.Column("nodes", Json, nullable=False, comment="nodes rolled back, the last first"),
        sa.Column("superseded", Json, nullable=False, comment="executions that had forked from the left line"),
        sa.Column("by", sa.String(length=255), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.Double(), server_default=now(), nullable=False),
        sa.Column("redone_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["execution_id"], ["executions.id"], name=op.f("fk_rollbacks_execution_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_rollbacks_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollbacks")),
    )
    op.create_index(op.f("ix_rollbacks_execution_id"), "rollbacks", ["execution_id"], unique=False)
    op.create_index(op.f("ix_rollbacks_sweep_id"), "rollbacks", ["sweep_id"], unique=False)
    op.create_table(
        "invocations",
        sa.Column("node_run_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tool", sa.String(length=200), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False, comment="typed JSON"),
        sa.Column("result", sa.Text(), nullable=True, comment="typed JSON"),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("undone_at", sa.Double(), nullable=True),
        sa.CheckConstraint("status IN ('done', 'failed', 'undone')", name=op.f("ck_invocations_status")),
        sa.ForeignKeyConstraint(
            ["node_run_id"], ["node_runs.id"], name=op.f("fk_invocations_node_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_run_id", "attempt", "number", name=op.f("pk_invocations")),
    )
    op.add_column(
        "checkpoints",
        sa.Column(
            "inside",
            Json,
            nullable=True,
            comment="of one taken inside a node: node_run, node, variant, saved (key -> digest)",
        ),
    )
    op.create_index(
        "ix_checkpoints_inside",
        "checkpoints",
        ["parent_id"],
        unique=False,
        postgresql_where=sa.text("inside IS NOT NULL"),
        sqlite_where=sa.text("inside IS NOT NULL"),
    )
    op.create_index(
        "ix_events_alerting",
        "events",
        ["sweep_id", "id"],
        unique=False,
        postgresql_where=sa.text("execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"),
        sqlite_where=sa.text("execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"),
    )
    op.add_column(
        "executions",
        sa.Column(
            "choices",
            Json,
            nullable=True,
            comment="node -> variant, of one that a person forked: it stands for no cell",
        ),
    )
    op.add_column(
        "executions",
        sa.Column(
            "edited", sa.Boolean(), server_default=sa.false(), nullable=False, comment="a person changed its state"
        ),
    )
    op.add_column(
        "executions",
        sa.Column("asked", Json, nullable=True, comment="what a person wants of it while it runs: to, by, reason"),
    )
    op.add_column(
        "executions",
        sa.Column(
            "passed_id",
            sa.String(length=32),
            nullable=True,
            comment="the checkpoint at which nothing holds it up again",
        ),
    )
    op.add_column(
        "executions",
        sa.Column(
            "stalled_at",
            sa.Double(),
            nullable=True,
            comment="since when a node of it that runs has told nothing; null where it tells",
        ),
    )
    op.add_column(
        "sweeps",
        sa.Column(
            "kind", sa.String(length=8), server_default="sweep", nullable=False, comment="sweep, or a single execution"
        ),
    )
    op.add_column("sweeps", sa.Column("breakpoints", Json, nullable=True, comment="where executions pause, in words"))
    op.add_column(
        "sweeps",
        sa.Column("notify", Json, nullable=True, comment="whom to tell of what; null where nobody is to be told"),
    )
    op.create_index(
        "ix_sweeps_notify",
        "sweeps",
        ["id"],
        unique=False,
        postgresql_where=sa.text("notify IS NOT NULL"),
        sqlite_where=sa.text("notify IS NOT NULL"),
    )
    op.drop_column("sweeps", "node_runs_taken")


def downgrade() -> None:
    op.add_column("sweeps", sa.Column("node_runs_taken", sa.BIGINT(), server_default=sa.text("'0'"), nullable=False))
    op.drop_index(
        "ix_sweeps_notify",
        table_name="sweeps",
        postgresql_where=sa.text("notify IS NOT NULL"),
        sqlite_where=sa.text("notify IS NOT NULL"),
    )
    op.drop_column("sweeps", "notify")
    op.drop_column("sweeps", "breakpoints")
    op.drop_column("sweeps", "kind")
    op.drop_column("executions", "stalled_at")
    op.drop_column("executions", "passed_id")
    op.drop_column("executions", "asked")
    op.drop_column("executions", "edited")
    op.drop_column("executions", "choices")
    op.drop_index(
        "ix_events_alerting",
        table_name="events",
        postgresql_where=sa.text("execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"),
        sqlite_where=sa.text("execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"),
    )
    op.drop_index(
        "ix_checkpoints_inside",
        table_name="checkpoints",
        postgresql_where=sa.text("inside IS NOT NULL"),
        sqlite_where=sa.text("inside IS NOT NULL"),
    )
    op.drop_column("checkpoints", "inside")
    op.drop_table("invocations")
    op.drop_index(op.f("ix_rollbacks_sweep_id"), table_name="rollbacks")
    op.drop_index(op.f("ix_rollbacks_execution_id"), table_name="rollbacks")
    op.drop_table("rollbacks")
    op.drop_index(op.f("ix_awaiting_execution_id"), table_name="awaiting")
    op.drop_table("awaiting")
    op.drop_index(op.f("ix_approvals_sweep_id"), table_name="approvals")
    op.drop_index(
        "ix_approvals_open",
        table_name="approvals",
        postgresql_where=sa.text("status = 'open'"),
        sqlite_where=sa.text("status = 'open'"),
    )
    op.drop_table("approvals")
    op.drop_index(op.f("ix_alerts_sweep_id"), table_name="alerts")
    op.drop_index(
        "ix_alerts_open",
        table_name="alerts",
        postgresql_where=sa.text("sent_at IS NULL"),
        sqlite_where=sa.text("sent_at IS NULL"),
    )
    op.drop_table("alerts")
    op.drop_index(op.f("ix_reservations_runner_id"), table_name="reservations")
    op.drop_table("reservations")
    op.drop_table("budgets")
