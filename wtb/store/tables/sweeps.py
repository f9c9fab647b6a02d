"""The tables of sweeps: who they belong to, who runs them, what they run, and their one log of events."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.ids import plain_id
from wtb.core.status import HIDDEN_SWEEPS, SWEEP
from wtb.store.tables.access import project_column
from wtb.store.tables.column_types import (
    Count,
    Digest,
    Id,
    Json,
    OrderedJson,
    Seconds,
    metadata,
    now,
    one_of,
    ref,
    transaction_number,
    where,
)

ALERTING = "execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"  # events to alert people of

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("quota", Json),
    sa.Column("owner", sa.String(200), comment="who is responsible for it"),
    sa.Column("metadata", Json, comment="texts by name"),
    project_column(),
    sa.Column("archived_at", Seconds),
    sa.Column("deleted_usd", sa.Double, nullable=False, server_default="0", comment="spent by sweeps deleted since"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Index("ix_sessions_project", "project"),
)

runners = sa.Table(
    "runners",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("boot", sa.String(64), nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("process_started_at", Seconds, nullable=False),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("session_id", Id, comment="whose slots it takes; null where it serves any session"),
    sa.Column("slots", sa.Integer, nullable=False, server_default="0", comment="node runs at a time"),
    sa.Column("seen_at", Seconds, comment="its last heartbeat"),
    sa.Column("ended_at", Seconds, comment="null while it runs, or where it died"),
    sa.Column("worker", sa.String(255), comment="name of the worker that it is a process of; null for `wtb run`"),
    sa.Column("pool", sa.String(16), comment="of the worker: prefork or threads"),
    sa.Column("queues", Json, comment="names of the queues that it takes executions from"),
    sa.Column("version", sa.String(40)),
    sa.Column("clock_s", sa.Double, comment="how far its clock is ahead of the database's, at its last heartbeat"),
    sa.Column("refused", Json, comment="ids of sweeps whose code it rejects; null if none"),
    sa.Index("ix_runners_session_id", "session_id"),
)

workflows = sa.Table(
    "workflows",
    metadata,
    sa.Column("id", Digest, primary_key=True, comment="SHA-256 of the graph snapshot"),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("version", sa.String(200), nullable=False),
    sa.Column("graph", OrderedJson, nullable=False),
)

sweeps = sa.Table(
    "sweeps",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("session_id", Id, ref("sessions.id"), nullable=False, index=True),
    sa.Column("workflow_id", Digest, sa.ForeignKey("workflows.id"), nullable=False, index=True),
    sa.Column("name", sa.String(200), nullable=False, index=True),
    project_column(),
    sa.Column("token", sa.String(64), comment="by which it was submitted, and whose budget binds it"),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("runner_id", Id, comment="the process that runs it by itself, while it does"),
    sa.Column("queued", sa.Boolean, nullable=False, server_default=sa.false(), comment="workers run it"),
    sa.Column("running_since", Seconds, comment="the time of its limit `wall` counts from here"),
    sa.Column("spec", OrderedJson, nullable=False, comment="the sweep as it was submitted, and where from"),
    sa.Column("fingerprints", OrderedJson, nullable=False, comment="node -> variant -> code fingerprint"),
    sa.Column("kind", sa.String(8), nullable=False, server_default="sweep", comment="sweep, or a single execution"),
    sa.Column("breakpoints", Json, comment="where executions pause, in words"),
    sa.Column("notify", Json, comment="notification targets and what each is sent; null if none"),
    sa.Column("cells", Count, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false(), comment="retention keeps it"),
    sa.Column("collected_usd", sa.Double, nullable=False, server_default="0", comment="of attempts collected since"),
    sa.Column("collected_node_runs", Count, nullable=False, server_default="0"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("started_at", Seconds),
    sa.Column("finished_at", Seconds),
    sa.Column("root_s", sa.Double, comment="seconds that a root with its tree took a slot lately; null until measured"),
    one_of("status", SWEEP),
    sa.Index("ix_sweeps_project", "project", "created_at", "id"),
    sa.Index("ix_sweeps_open", "status", "priority", **where("queued AND status IN ('pending', 'running')")),
    sa.Index("ix_sweeps_hidden", "status", **where("status IN ('submitting', 'deleting')")),
    sa.Index("ix_sweeps_notify", "id", **where("notify IS NOT NULL")),
)

# Whoever looks for sweeps, and does not have one yet, asks for this.
is_visible: sa.ColumnElement[bool] = sweeps.c.status.not_in(HIDDEN_SWEEPS)

cases = sa.Table(
    "cases",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("input", Json, nullable=False, comment="key -> digest of its value"),
    sa.Column("expected", sa.Text, comment="typed JSON"),
    sa.Column("tags", Json, nullable=False),
    sa.Column("workspace", Digest),
    sa.Column("cluster", sa.Text, comment="what it came from with others, which are not independent of it"),
    sa.Column("erased_at", Seconds, comment="nothing but its id and number is left of it then"),
    sa.Column("erased_by", sa.String(255)),
    sa.UniqueConstraint("sweep_id", "id"),
)

# Whoever counts or lists the cases of a sweep asks for this, unless it is about what was erased.
is_kept: sa.ColumnElement[bool] = cases.c.erased_at.is_(None)


def is_case(id: str) -> sa.ColumnElement[bool]:
    """Return the condition that a case has an id, as it is typed or as it is stored."""
    return cases.c.id.in_(sorted({id, plain_id(id)}))


combinations = sa.Table(
    "combinations",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("choices", OrderedJson, nullable=False, comment="varied node -> variant"),
    sa.Column("stopped", Json, comment="by, reason, at: its open cells were skipped"),
    sa.Index("ix_combinations_stopped", "sweep_id", **where("stopped IS NOT NULL")),
)

limited_nodes = sa.Table(
    "limited_nodes",
    metadata,
    sa.Column("workflow", sa.String(200), primary_key=True),
    sa.Column("node", sa.String(200), primary_key=True),
    sa.Column("next_at", Seconds, nullable=False, server_default="0", comment="when a node with a rate may start"),
)

permits = sa.Table(
    "permits",
    metadata,
    sa.Column("workflow", sa.String(200), primary_key=True),
    sa.Column("node", sa.String(200), primary_key=True),
    sa.Column("runner_id", Id, ref("runners.id"), primary_key=True),
    sa.Column("held", sa.Integer, nullable=False, comment="node runs at a time, of a node with a limit"),
)

session_memory = sa.Table(
    "session_memory",
    metadata,
    sa.Column("runner_id", Id, ref("runners.id"), primary_key=True),
    sa.Column("session_id", Id, ref("sessions.id"), primary_key=True, index=True),
    sa.Column("used", Count, nullable=False, comment="bytes in the node processes of the runner that work for it"),
    sa.Column("largest", Count, nullable=False, comment="of them in the largest process in which something runs"),
    sa.Column("measured_at", Seconds, nullable=False, server_default=now()),
    sa.CheckConstraint("used >= 0 AND largest >= 0", name="sizes"),
)

log_ids = sa.Table(
    "log_ids",
    metadata,
    sa.Column("last", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=False),
    comment="the last id in the log, on SQLite; PostgreSQL has the sequence of events.id",
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(always=False), primary_key=True),
    sa.Column("transaction", sa.BigInteger, nullable=False, server_default=transaction_number()),
    sa.Column("session_id", Id, nullable=False),
    sa.Column("sweep_id", Id, nullable=False),
    sa.Column("execution_id", Id),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("severity", sa.String(8), nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.CheckConstraint("severity IN ('debug', 'info', 'warning', 'error')", name="severity"),
    sa.Index("ix_events_sweep_id_transaction_id", "sweep_id", "transaction", "id"),
    sa.Index("ix_events_alerting", "sweep_id", "id", **where(ALERTING)),
)
