"""Migration 0001: first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.sweeps import now, transaction_number

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), sa.Identity(always=False), nullable=False
        ),
        sa.Column("transaction", sa.BigInteger(), server_default=transaction_number(), nullable=False),
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("execution_id", sa.String(length=32), nullable=True),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("severity", sa.String(length=8), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.CheckConstraint("severity IN ('debug', 'info', 'warning', 'error')", name=op.f("ck_events_severity")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_sweep_id_transaction_id", "events", ["sweep_id", "transaction", "id"], unique=False)
    op.create_table(
        "runners",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("boot", sa.String(length=64), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_started_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runners")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("quota", Json, nullable=True),
        sa.Column("archived_at", sa.Double(), nullable=True),
        sa.Column("created_at", sa.Double(), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("name", name=op.f("uq_sessions_name")),
    )
    op.create_table(
        "values",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("data", sa.Text(), nullable=False, comment="typed JSON"),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_values")),
    )
    op.create_table(
        "workflows",
        sa.Column("id", sa.String(length=64), nullable=False, comment="SHA-256 of the graph snapshot"),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("version", sa.String(length=200), nullable=False),
        sa.Column("graph", Json, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workflows")),
    )
    op.create_table(
        "sweeps",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("workflow_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("project", sa.String(length=200), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column(
            "runner_id",
            sa.String(length=32),
            nullable=True,
            comment="the process that runs it by itself, while it does",
        ),
        sa.Column("spec", Json, nullable=False, comment="the sweep as it was submitted, and where from"),
        sa.Column("fingerprints", Json, nullable=False, comment="node -> variant -> code fingerprint"),
        sa.Column("cells", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), server_default=now(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'paused', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_sweeps_status"),
        ),
        sa.ForeignKeyConstraint(["session_id"], ["sessions.id"], name=op.f("fk_sweeps_session_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["workflow_id"], ["workflows.id"], name=op.f("fk_sweeps_workflow_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sweeps")),
    )
    op.create_index(op.f("ix_sweeps_name"), "sweeps", ["name"], unique=False)
    op.create_index(op.f("ix_sweeps_session_id"), "sweeps", ["session_id"], unique=False)
    op.create_index(op.f("ix_sweeps_workflow_id"), "sweeps", ["workflow_id"], unique=False)
    op.create_table(
        "cases",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("input", Json, nullable=False, comment="key -> digest of its value"),
        sa.Column("expected", sa.Text(), nullable=True, comment="typed JSON"),
        sa.Column("tags", Json, nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=True),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_cases_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_cases")),
        sa.UniqueConstraint("sweep_id", "id", name=op.f("uq_cases_sweep_id_id")),
    )
    op.create_table(
        "cells",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("case_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("repeat", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("combination", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column(
            "execution_id",
            sa.String(length=32),
            nullable=True,
            comment="whose outcome it has, or the one that holds it",
        ),
        sa.Column(
            "elapsed_s",
            sa.Double(),
            nullable=True,
            comment="as if alone: accepted attempts, the longest of a parallel step",
        ),
        sa.Column("usd", sa.Double(), nullable=True),
        sa.Column("tokens_in", sa.BigInteger(), nullable=True),
        sa.Column("tokens_out", sa.BigInteger(), nullable=True),
        sa.Column("node_runs", sa.BigInteger(), nullable=True),
        sa.Column("failure", Json, nullable=True),
        sa.Column("edited", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'skipped', 'set_aside')",
            name=op.f("ck_cells_status"),
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_cells_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "case_number", "repeat", "combination", name=op.f("pk_cells")),
    )
    op.create_index(op.f("ix_cells_execution_id"), "cells", ["execution_id"], unique=False)
    op.create_table(
        "combinations",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("choices", Json, nullable=False, comment="varied node -> variant"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_combinations_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name=op.f("pk_combinations")),
    )
    op.create_table(
        "executions",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("parent_id", sa.String(length=32), nullable=True),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("case_number", sa.Integer(), nullable=False),
        sa.Column("repeat", sa.Integer(), nullable=False),
        sa.Column("combinations", Json, nullable=False, comment="numbers of the combinations that it stands for"),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("head_id", sa.String(length=32), nullable=True, comment="null until the first step is prepared"),
        sa.Column("failure", Json, nullable=True),
        sa.Column("owner_id", sa.String(length=32), nullable=True),
        sa.Column("token", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("kills", sa.Integer(), server_default="0", nullable=False),
        sa.Column("queue", sa.String(length=100), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name=op.f("ck_executions_owner")),
        sa.CheckConstraint("origin IN ('root', 'fork', 'retry', 'manual')", name=op.f("ck_executions_origin")),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'forked', 'waiting', 'paused', 'completed', 'failed', 'cancelled')",
            name=op.f("ck_executions_status"),
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_executions_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_executions")),
    )
    op.create_index("ix_executions_owner_id", "executions", ["owner_id"], unique=False)
    op.create_index("ix_executions_parent_id", "executions", ["parent_id"], unique=False)
    op.create_index("ix_executions_sweep_id_status_id", "executions", ["sweep_id", "status", "id"], unique=False)
    op.create_table(
        "metrics",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False, comment="their order in the matrix"),
        sa.Column("better", sa.String(length=8), nullable=False),
        sa.CheckConstraint("better IN ('higher', 'lower')", name=op.f("ck_metrics_better")),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_metrics_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "name", name=op.f("pk_metrics")),
    )
    op.create_table(
        "scores",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("metric", sa.String(length=200), nullable=False),
        sa.Column("case_number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("repeat", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("combination", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_scores_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "metric", "case_number", "repeat", "combination", name=op.f("pk_scores")),
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("execution_id", sa.String(length=32), nullable=False),
        sa.Column("parent_id", sa.String(length=32), nullable=True),
        sa.Column("position", Json, nullable=False, comment="step, next nodes, arrived at joins, visits"),
        sa.Column("state", Json, nullable=False, comment="key -> digest of its value"),
        sa.Column("writers", Json, nullable=False, comment="[node, variant, node run]"),
        sa.Column("workspace", sa.String(length=64), nullable=True),
        sa.Column("totals", Json, nullable=False),
        sa.Column("trigger", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "trigger IN ('step', 'time', 'manual', 'durable', 'error')", name=op.f("ck_checkpoints_trigger")
        ),
        sa.ForeignKeyConstraint(
            ["execution_id"],
            ["executions.id"],
            name=op.f("fk_checkpoints_execution_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_checkpoints_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
    )
    op.create_index(op.f("ix_checkpoints_execution_id"), "checkpoints", ["execution_id"], unique=False)
    op.create_index(op.f("ix_checkpoints_sweep_id"), "checkpoints", ["sweep_id"], unique=False)
    op.create_table(
        "decisions",
        sa.Column("checkpoint_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node", sa.String(length=200), nullable=False),
        sa.Column("to", sa.String(length=200), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"],
            ["checkpoints.id"],
            name=op.f("fk_decisions_checkpoint_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", "number", name=op.f("pk_decisions")),
    )
    op.create_table(
        "node_runs",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("execution_id", sa.String(length=32), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=32), nullable=False),
        sa.Column(
            "task", sa.String(length=300), nullable=False, comment="the node, or node and number where it fans out"
        ),
        sa.Column("node", sa.String(length=200), nullable=False),
        sa.Column("variant", sa.String(length=200), nullable=False),
        sa.Column("visit", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("cells", sa.Integer(), nullable=False, comment="how many cells take part in it"),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("writes", Json, nullable=True, comment="key -> digest of what the accepted attempt wrote"),
        sa.Column("workspace", sa.String(length=64), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False, comment="of the accepted attempt"),
        sa.Column("usd", sa.Double(), nullable=False, comment="of the accepted attempt"),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("status IN ('running', 'succeeded', 'failed', 'skipped')", name=op.f("ck_node_runs_status")),
        sa.ForeignKeyConstraint(
            ["checkpoint_id"],
            ["checkpoints.id"],
            name=op.f("fk_node_runs_checkpoint_id"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_node_runs_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_node_runs")),
        sa.UniqueConstraint("checkpoint_id", "task", "variant", name=op.f("uq_node_runs_checkpoint_id_task_variant")),
    )
    op.create_index(op.f("ix_node_runs_execution_id"), "node_runs", ["execution_id"], unique=False)
    op.create_index("ix_node_runs_sweep_id_node", "node_runs", ["sweep_id", "node"], unique=False)
    op.create_table(
        "attempts",
        sa.Column("node_run_id", sa.String(length=32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("usd", sa.Double(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("failure", Json, nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.CheckConstraint("status IN ('succeeded', 'failed')", name=op.f("ck_attempts_status")),
        sa.ForeignKeyConstraint(
            ["node_run_id"], ["node_runs.id"], name=op.f("fk_attempts_node_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node_run_id", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "calls",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("node_run_id", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=True),
        sa.Column("tool", sa.String(length=200), nullable=True),
        sa.Column("prompt", sa.Text(), nullable=True, comment="typed JSON"),
        sa.Column("response", sa.Text(), nullable=True, comment="typed JSON"),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("usd", sa.Double(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=True),
        sa.Column("at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["node_run_id"], ["node_runs.id"], name=op.f("fk_calls_node_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calls")),
    )
    op.create_index(op.f("ix_calls_node_run_id"), "calls", ["node_run_id"], unique=False)
    op.execute("INSERT INTO sessions (id, name) VALUES ('default', 'default')")


def downgrade() -> None:
    op.drop_index(op.f("ix_calls_node_run_id"), table_name="calls")
    op.drop_table("calls")
    op.drop_table("attempts")
    op.drop_index("ix_node_runs_sweep_id_node", table_name="node_runs")
    op.drop_index(op.f("ix_node_runs_execution_id"), table_name="node_runs")
    op.drop_table("node_runs")
    op.drop_table("decisions")
    op.drop_index(op.f("ix_checkpoints_sweep_id"), table_name="checkpoints")
    op.drop_index(op.f("ix_checkpoints_execution_id"), table_name="checkpoints")
    op.drop_table("checkpoints")
    op.drop_table("scores")
    op.drop_table("metrics")
    op.drop_index("ix_executions_sweep_id_status_id", table_name="executions")
    op.drop_index("ix_executions_parent_id", table_name="executions")
    op.drop_index("ix_executions_owner_id", table_name="executions")
    op.drop_table("executions")
    op.drop_table("combinations")
    op.drop_index(op.f("ix_cells_execution_id"), table_name="cells")
    op.drop_table("cells")
    op.drop_table("cases")
    op.drop_index(op.f("ix_sweeps_workflow_id"), table_name="sweeps")
    op.drop_index(op.f("ix_sweeps_session_id"), table_name="sweeps")
    op.drop_index(op.f("ix_sweeps_name"), table_name="sweeps")
    op.drop_table("sweeps")
    op.drop_table("workflows")
    op.drop_table("values")
    op.drop_table("sessions")
    op.drop_table("runners")
    op.drop_index("ix_events_sweep_id_transaction_id", table_name="events")
    op.drop_table("events")
