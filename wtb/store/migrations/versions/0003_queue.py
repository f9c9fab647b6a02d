"""Migration 0003: queue."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "limited_nodes",
        sa.Column("workflow", sa.String(length=200), nullable=False),
        sa.Column("node", sa.String(length=200), nullable=False),
        sa.Column(
            "next_at", sa.Double(), server_default="0", nullable=False, comment="when a node with a rate may start"
        ),
        sa.PrimaryKeyConstraint("workflow", "node", name=op.f("pk_limited_nodes")),
    )
    op.create_table(
        "permits",
        sa.Column("workflow", sa.String(length=200), nullable=False),
        sa.Column("node", sa.String(length=200), nullable=False),
        sa.Column("runner_id", sa.String(length=32), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False, comment="node runs at a time, of a node with a limit"),
        sa.ForeignKeyConstraint(["runner_id"], ["runners.id"], name=op.f("fk_permits_runner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("workflow", "node", "runner_id", name=op.f("pk_permits")),
    )
    op.create_table(
        "matrices",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column(
            "transaction", sa.BigInteger(), server_default="-1", nullable=False, comment="tallied up to this event"
        ),
        sa.Column("event_id", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tallied_at", sa.Double(), nullable=True),
        sa.Column("document", Json, nullable=True, comment="the matrix, once the sweep is at its end"),
        sa.Column("frozen_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_matrices_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", name=op.f("pk_matrices")),
    )
    op.create_table(
        "tallies",
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column("metric", sa.String(length=200), nullable=False),
        sa.Column("combination", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False, comment="cells with a score"),
        sa.Column("total", sa.Double(), nullable=False, comment="sum of their scores"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_tallies_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("sweep_id", "metric", "combination", name=op.f("pk_tallies")),
    )
    op.create_table(
        "working",
        sa.Column("runner_id", sa.String(length=32), nullable=False),
        sa.Column("slot", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session_id", sa.String(length=32), nullable=False),
        sa.Column("sweep_id", sa.String(length=32), nullable=False),
        sa.Column(
            "execution_id",
            sa.String(length=32),
            nullable=False,
            comment="that it was claimed for; it goes on with what forks off",
        ),
        sa.Column("since", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["runner_id"], ["runners.id"], name=op.f("fk_working_runner_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweeps.id"], name=op.f("fk_working_sweep_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("runner_id", "slot", name=op.f("pk_working")),
        comment="the slots of workers that are busy",
    )
    op.create_index(op.f("ix_working_session_id"), "working", ["session_id"], unique=False)
    op.create_index(op.f("ix_working_sweep_id"), "working", ["sweep_id"], unique=False)
    op.add_column(
        "executions",
        sa.Column("losses", sa.Integer(), server_default="0", nullable=False, comment="leases that ran out in a node"),
    )
    op.create_index(
        "ix_executions_lease_until",
        "executions",
        ["lease_until"],
        unique=False,
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )
    op.add_column(
        "runners",
        sa.Column(
            "worker",
            sa.String(length=255),
            nullable=True,
            comment="name of the worker that it is a process of; null for `wtb run`",
        ),
    )
    op.add_column(
        "runners", sa.Column("pool", sa.String(length=16), nullable=True, comment="of the worker: prefork or threads")
    )
    op.add_column(
        "runners", sa.Column("queues", Json, nullable=True, comment="names of the queues that it takes executions from")
    )
    op.add_column("runners", sa.Column("version", sa.String(length=40), nullable=True))
    op.add_column(
        "runners",
        sa.Column(
            "clock_s",
            sa.Double(),
            nullable=True,
            comment="how far its clock is ahead of the database's, at its last heartbeat",
        ),
    )
    op.add_column(
        "sweeps", sa.Column("queued", sa.Boolean(), server_default=sa.false(), nullable=False, comment="workers run it")
    )
    op.add_column(
        "sweeps",
        sa.Column("running_since", sa.Double(), nullable=True, comment="the time of its limit `wall` counts from here"),
    )
    op.add_column(
        "sweeps",
        sa.Column(
            "node_runs_taken", sa.BigInteger(), server_default="0", nullable=False, comment="of its limit `node_runs`"
        ),
    )
    op.create_index(
        "ix_sweeps_open",
        "sweeps",
        ["status", "priority"],
        unique=False,
        postgresql_where=sa.text("queued AND status IN ('pending', 'running')"),
        sqlite_where=sa.text("queued AND status IN ('pending', 'running')"),
    )


def downgrade() -> None:
    op.drop_index(
        "ix_sweeps_open",
        table_name="sweeps",
        postgresql_where=sa.text("queued AND status IN ('pending', 'running')"),
        sqlite_where=sa.text("queued AND status IN ('pending', 'running')"),
    )
    op.drop_column("sweeps", "node_runs_taken")
    op.drop_column("sweeps", "running_since")
    op.drop_column("sweeps", "queued")
    op.drop_column("runners", "clock_s")
    op.drop_column("runners", "version")
    op.drop_column("runners", "queues")
    op.drop_column("runners", "pool")
    op.drop_column("runners", "worker")
    op.drop_index(
        "ix_executions_lease_until",
        table_name="executions",
        postgresql_where=sa.text("status = 'running'"),
        sqlite_where=sa.text("status = 'running'"),
    )
    op.drop_column("executions", "losses")
    op.drop_index(op.f("ix_working_sweep_id"), table_name="working")
    op.drop_index(op.f("ix_working_session_id"), table_name="working")
    op.drop_table("working")
    op.drop_table("tallies")
    op.drop_table("matrices")
    op.drop_table("permits")
    op.drop_table("limited_nodes")
