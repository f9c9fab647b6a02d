"""Migration 1000: the tables as they were at first, in place of the migrations 0001 to 0011 of early development.

A database that these led to is as this one makes it (see `wtb/store/squashed.py`). Nothing here follows changes of
the tables: they are migrations of their own. Names of constraints follow the naming convention of the metadata.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from wtb.store.tables.schema import now, transaction_number

revision = "1000"
down_revision = None
branch_labels = None
depends_on = None

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Id = sa.String(32)
Digest = sa.String(64)


def ref(target: str, *, deferred: bool = False) -> sa.ForeignKey:
    return sa.ForeignKey(
        target, ondelete="CASCADE", deferrable=deferred or None, initially="DEFERRED" if deferred else None
    )


def where(condition: str) -> dict[str, Any]:
    """Options of a partial index."""
    return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("scope", sa.String(8), primary_key=True),
        sa.Column("key", sa.String(420), primary_key=True, comment="id of the session or sweep, name of the project"),
        sa.Column("node", sa.String(200), primary_key=True, server_default="", comment="of a sweep; empty: all of it"),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("most", sa.Double, nullable=False),
        sa.Column("spent", sa.Double, nullable=False, server_default="0"),
        sa.Column(
            "warned", sa.Double, nullable=False, server_default="0", comment="share of it that was warned of last"
        ),
        sa.CheckConstraint("scope IN ('session', 'project', 'sweep')", name="scope"),
        sa.CheckConstraint("kind IN ('usd', 'tokens', 'node_runs')", name="kind"),
    )
    op.create_table(
        "events",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), sa.Identity(always=False), primary_key=True
        ),
        sa.Column("transaction", sa.BigInteger, nullable=False, server_default=transaction_number()),
        sa.Column("session_id", Id, nullable=False),
        sa.Column("sweep_id", Id, nullable=False),
        sa.Column("execution_id", Id),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("severity", sa.String(8), nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("data", Json, nullable=False),
        sa.CheckConstraint("severity IN ('debug', 'info', 'warning', 'error')", name="severity"),
        sa.Index("ix_events_sweep_id_transaction_id", "sweep_id", "transaction", "id"),
        sa.Index(
            "ix_events_alerting",
            "sweep_id",
            "id",
            **where("execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"),
        ),
    )
    op.create_table(
        "limited_nodes",
        sa.Column("workflow", sa.String(200), primary_key=True),
        sa.Column("node", sa.String(200), primary_key=True),
        sa.Column(
            "next_at", sa.Double, nullable=False, server_default="0", comment="when a node with a rate may start"
        ),
    )
    op.create_table(
        "runners",
        sa.Column("id", Id, primary_key=True),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("boot", sa.String(64), nullable=False),
        sa.Column("pid", sa.Integer, nullable=False),
        sa.Column("process_started_at", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("session_id", Id, comment="whose slots it takes; null where it serves any session"),
        sa.Column("slots", sa.Integer, nullable=False, server_default="0", comment="node runs at a time"),
        sa.Column("seen_at", sa.Double, comment="its last heartbeat"),
        sa.Column("ended_at", sa.Double, comment="null while it runs, or where it died"),
        sa.Column("worker", sa.String(255), comment="name of the worker that it is a process of; null for `wtb run`"),
        sa.Column("pool", sa.String(16), comment="of the worker: prefork or threads"),
        sa.Column("queues", Json, comment="names of the queues that it takes executions from"),
        sa.Column("version", sa.String(40)),
        sa.Column("clock_s", sa.Double, comment="how far its clock is ahead of the database's, at its last heartbeat"),
        sa.Index("ix_runners_session_id", "session_id"),
    )
    op.create_table(
        "sessions",
        sa.Column("id", Id, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("quota", Json),
        sa.Column("archived_at", sa.Double),
        sa.Column(
            "deleted_usd", sa.Double, nullable=False, server_default="0", comment="spent by sweeps deleted since"
        ),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
    )
    op.create_table(
        "thread_writes",
        # No reference: writes may be stored before their checkpoint, and each reference costs a step that it waits for.
        sa.Column("session_id", Id, primary_key=True),
        sa.Column("thread_id", Name, primary_key=True),
        sa.Column("namespace", Name, primary_key=True),
        sa.Column("checkpoint_id", Name, primary_key=True, comment="that they were made from"),
        sa.Column("task_id", Name, primary_key=True),
        sa.Column(
            "number", sa.Integer, primary_key=True, autoincrement=False, comment="negative: may be written again"
        ),
        sa.Column("path", Name, nullable=False, comment="of the task: what orders writes of one step"),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("digest", Digest, comment="of its value"),
        sa.Column("value", sa.Text, comment="the value itself, where it is short: typed JSON"),
        sa.CheckConstraint("(digest IS NULL) <> (value IS NULL)", name="value"),
    )
    op.create_table(
        "values",
        sa.Column("digest", Digest, primary_key=True),
        sa.Column("data", sa.Text, nullable=False, comment="typed JSON"),
    )
    op.create_table(
        "workflows",
        sa.Column("id", Digest, primary_key=True, comment="SHA-256 of the graph snapshot"),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("version", sa.String(200), nullable=False),
        sa.Column("graph", Json, nullable=False),
    )
    op.create_table(
        "files",
        sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
        sa.Column("digest", Digest, primary_key=True, comment="of a content or manifest that its snapshots refer to"),
        sa.Column("size", sa.BigInteger, nullable=False, comment="bytes"),
        sa.Index("ix_files_digest", "digest"),
    )
    op.create_table(
        "permits",
        sa.Column("workflow", sa.String(200), primary_key=True),
        sa.Column("node", sa.String(200), primary_key=True),
        sa.Column("runner_id", Id, ref("runners.id"), primary_key=True),
        sa.Column("held", sa.Integer, nullable=False, comment="node runs at a time, of a node with a limit"),
    )
    op.create_table(
        "reservations",
        sa.Column("id", Id, primary_key=True, comment="of an attempt of a node run"),
        sa.Column("scope", sa.String(8), primary_key=True),
        sa.Column("key", sa.String(420), primary_key=True),
        sa.Column("node", sa.String(200), primary_key=True, server_default=""),
        sa.Column("kind", sa.String(10), primary_key=True),
        sa.Column("amount", sa.Double, nullable=False),
        sa.Column("alone", sa.Boolean, nullable=False, comment="its cost is unknown: no other starts beside it"),
        sa.Column("execution_id", Id, nullable=False),
        sa.Column("runner_id", Id, nullable=False, index=True),
        sa.ForeignKeyConstraint(
            ["scope", "key", "node", "kind"],
            ["budgets.scope", "budgets.key", "budgets.node", "budgets.kind"],
            ondelete="CASCADE",
        ),
        comment="what node runs that are under way may still spend of a budget",
    )
    op.create_table(
        "schedules",
        sa.Column("id", Id, primary_key=True),
        sa.Column("session_id", Id, ref("sessions.id"), nullable=False, index=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("file", sa.Text, nullable=False, comment="absolute path of the sweep file"),
        sa.Column("folder", sa.Text, nullable=False, comment="where its fires start"),
        sa.Column("cron", sa.String(200), nullable=False),
        sa.Column("tz", sa.String(100), nullable=False),
        sa.Column("missed", sa.String(8), nullable=False),
        sa.Column("queued", sa.Boolean, nullable=False, comment="workers run its sweeps"),
        sa.Column("baseline", sa.String(200), comment="the name of one, or `last`"),
        sa.Column("margin", Json, nullable=False, comment="metric -> the loss that would matter"),
        sa.Column("notify", Json, nullable=False, comment="notification targets"),
        sa.Column("next_at", sa.Double, comment="its next fire; null while it is paused"),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.CheckConstraint("status IN ('active', 'paused')", name="status"),
        sa.CheckConstraint("missed IN ('skip', 'once')", name="missed"),
        sa.Index("ix_schedules_next_at", "next_at", **where("status = 'active'")),
    )
    op.create_table(
        "sweeps",
        sa.Column("id", Id, primary_key=True),
        sa.Column("session_id", Id, ref("sessions.id"), nullable=False, index=True),
        sa.Column("workflow_id", Digest, sa.ForeignKey("workflows.id"), nullable=False, index=True),
        sa.Column("name", sa.String(200), nullable=False, index=True),
        sa.Column("project", sa.String(200)),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("runner_id", Id, comment="the process that runs it by itself, while it does"),
        sa.Column("queued", sa.Boolean, nullable=False, server_default=sa.false(), comment="workers run it"),
        sa.Column("running_since", sa.Double, comment="the time of its limit `wall` counts from here"),
        sa.Column("spec", Json, nullable=False, comment="the sweep as it was submitted, and where from"),
        sa.Column("fingerprints", Json, nullable=False, comment="node -> variant -> code fingerprint"),
        sa.Column("kind", sa.String(8), nullable=False, server_default="sweep", comment="sweep, or a single execution"),
        sa.Column("breakpoints", Json, comment="where executions pause, in words"),
        sa.Column("notify", Json, comment="notification targets and what each is sent; null if none"),
        sa.Column("cells", sa.BigInteger, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false(), comment="retention keeps it"),
        sa.Column(
            "collected_usd", sa.Double, nullable=False, server_default="0", comment="of attempts collected since"
        ),
        sa.Column("collected_node_runs", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'paused', 'completed', 'failed', 'cancelled')", name="status"
        ),
        sa.Index("ix_sweeps_open", "status", "priority", **where("queued AND status IN ('pending', 'running')")),
        sa.Index("ix_sweeps_notify", "id", **where("notify IS NOT NULL")),
    )
    op.create_table(
        "thread_checkpoints",
        sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
        sa.Column("thread_id", Name, primary_key=True),
        sa.Column("namespace", Name, primary_key=True, comment="of a subgraph; empty: of the graph itself"),
        sa.Column("id", Name, primary_key=True),
        sa.Column("parent_id", Name),
        sa.Column("run_id", Name),
        sa.Column("state", Json, nullable=False, comment="channel -> digest of its value"),
        sa.Column("document", sa.Text, nullable=False, comment="typed JSON: rest of the checkpoint, and short values"),
        sa.Column("metadata", Json, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False, server_default=now()),
        sa.Index("ix_thread_checkpoints_run_id", "run_id", **where("run_id IS NOT NULL")),
    )
    op.create_table(
        "alerts",
        sa.Column("event_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("target", sa.Integer, primary_key=True, autoincrement=False, comment="place in the sweep's `notify`"),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
        sa.Column("at", sa.Double, nullable=False, server_default=now()),
        sa.Column("sent_at", sa.Double),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_until", sa.Double, comment="a notification is being sent, or waits for its next try"),
        sa.Column("error", sa.Text, comment="why its last notification failed"),
        sa.Index("ix_alerts_open", "sweep_id", **where("sent_at IS NULL")),
        comment="events to notify somebody of",
    )
    op.create_table(
        "approvals",
        sa.Column("id", Id, primary_key=True),
        sa.Column("session_id", Id, nullable=False),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
        sa.Column("checkpoint_id", Id, nullable=False),
        sa.Column(
            "key", sa.String(64), nullable=False, comment="of the question: one answer serves all that ask it here"
        ),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("node", sa.String(200), comment="that asks, or that comes next"),
        sa.Column("number", sa.Integer, nullable=False, comment="of questions of its node run, or attempts so far"),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("options", Json, comment="texts to choose from"),
        sa.Column("context", sa.Text, comment="typed JSON: what to look at"),
        sa.Column("default", Json, comment="the answer when time is up; null where there is none"),
        sa.Column("status", sa.String(12), nullable=False),
        sa.Column("answer", Json, comment="action, choice, feedback, set (key -> digest)"),
        sa.Column("answered_by", sa.String(255)),
        sa.Column("asked_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("expires_at", sa.Double),
        sa.Column("answered_at", sa.Double),
        sa.UniqueConstraint("checkpoint_id", "key"),
        sa.CheckConstraint("kind IN ('ask', 'before', 'after', 'error', 'action')", name="kind"),
        sa.CheckConstraint("status IN ('open', 'answered', 'expired', 'withdrawn')", name="status"),
        sa.CheckConstraint("(status IN ('answered', 'expired')) = (answer IS NOT NULL)", name="answer"),
        sa.Index("ix_approvals_open", "expires_at", **where("status = 'open'")),
    )
    op.create_table(
        "baselines",
        sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column(
            "sweep_id", Id, sa.ForeignKey("sweeps.id"), nullable=False, index=True, comment="not removed while it is"
        ),
        sa.Column("set_at", sa.Double, nullable=False, server_default=now()),
        sa.Column("noise_floor", Json, comment="what repeats of the sweep differ by; null where nobody made any"),
    )
    op.create_table(
        "cases",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("input", Json, nullable=False, comment="key -> digest of its value"),
        sa.Column("expected", sa.Text, comment="typed JSON"),
        sa.Column("tags", Json, nullable=False),
        sa.Column("workspace", Digest),
        sa.Column("cluster", sa.Text, comment="what it came from with others, which are not independent of it"),
        sa.UniqueConstraint("sweep_id", "id"),
    )
    op.create_table(
        "cells",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("execution_id", Id, index=True, comment="whose outcome it has, or the one that holds it"),
        sa.Column("elapsed_s", sa.Double, comment="as if alone: accepted attempts, the longest of a parallel step"),
        sa.Column("usd", sa.Double),
        sa.Column("tokens_in", sa.BigInteger),
        sa.Column("tokens_out", sa.BigInteger),
        sa.Column("node_runs", sa.BigInteger),
        sa.Column("failure", Json),
        sa.Column("edited", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("finished_at", sa.Double),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'waiting', 'succeeded', 'failed', 'cancelled', 'skipped', 'set_aside')",
            name="status",
        ),
        postgresql_with={"fillfactor": 50},  # each row is updated twice: on its own page that spares the indexes
    )
    op.create_table(
        "combinations",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("choices", Json, nullable=False, comment="varied node -> variant"),
    )
    op.create_table(
        "executions",
        sa.Column("id", Id, primary_key=True),
        sa.Column("session_id", Id, nullable=False),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False),
        sa.Column("parent_id", Id),
        sa.Column("origin", sa.String(16), nullable=False),
        sa.Column("case_number", sa.Integer, nullable=False),
        sa.Column("repeat", sa.Integer, nullable=False),
        sa.Column("combinations", Json, nullable=False, comment="numbers of the combinations that it stands for"),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("head_id", Id, comment="null until the first step is prepared"),
        sa.Column("failure", Json),
        sa.Column("owner_id", Id),
        sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease_until", sa.Double),
        sa.Column("kills", sa.Integer, nullable=False, server_default="0"),
        sa.Column("losses", sa.Integer, nullable=False, server_default="0", comment="leases that ran out in a node"),
        sa.Column("queue", sa.String(100)),
        sa.Column("choices", Json, comment="node -> variant, of one that a person forked: it stands for no cell"),
        sa.Column(
            "edited", sa.Boolean, nullable=False, server_default=sa.false(), comment="a person changed its state"
        ),
        sa.Column("asked", Json, comment="what a person wants of it while it runs: to, by, reason"),
        sa.Column("passed_id", Id, comment="the checkpoint at which nothing holds it up again"),
        sa.Column(
            "stalled_at", sa.Double, comment="since when its running node has reported nothing; null while it reports"
        ),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("finished_at", sa.Double),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'forked', 'waiting', 'paused', 'completed', 'failed', 'cancelled')",
            name="status",
        ),
        sa.CheckConstraint("origin IN ('root', 'fork', 'retry', 'manual')", name="origin"),
        sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name="owner"),
        sa.Index("ix_executions_sweep_id_status_id", "sweep_id", "status", "id"),
        sa.Index("ix_executions_begun", "sweep_id", "id", **where("status = 'pending' AND head_id IS NOT NULL")),
        sa.Index("ix_executions_owner_id", "owner_id"),
        sa.Index("ix_executions_parent_id", "parent_id"),
        sa.Index("ix_executions_lease_until", "lease_until", **where("status = 'running'")),
    )
    op.create_table(
        "fires",
        sa.Column("schedule_id", Id, ref("schedules.id"), primary_key=True),
        sa.Column("fire_at", sa.Double, primary_key=True, comment="when it was due"),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease_until", sa.Double, comment="when its lease ends; set after its end if a notification is due"),
        sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("sweep_id", Id, unique=True, comment="its sweep, set in the transaction that submits it"),
        sa.Column("baseline_id", Id, comment="the sweep that it was compared with"),
        sa.Column("verdict", sa.String(16)),
        sa.Column("why", Json, comment="sentences"),
        sa.Column("notified_at", sa.Double),
        sa.Column("notify_tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("notify_error", sa.Text),
        sa.Column("started_at", sa.Double),
        sa.Column("finished_at", sa.Double),
        sa.CheckConstraint("status IN ('due', 'starting', 'running', 'judged', 'failed')", name="status"),
        sa.CheckConstraint(
            "verdict IN ('better', 'same', 'not worse', 'unclear', 'worse', 'cannot tell', 'failed')", name="verdict"
        ),
        sa.Index(
            "ix_fires_open", "status", **where("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL")
        ),
    )
    op.create_table(
        "matrices",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column(
            "transaction", sa.BigInteger, nullable=False, server_default="-1", comment="tallied up to this event"
        ),
        sa.Column("event_id", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("tallied_at", sa.Double),
        sa.Column("document", Json, comment="the matrix, once the sweep is at its end"),
        sa.Column("frozen_at", sa.Double),
    )
    op.create_table(
        "metrics",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("number", sa.Integer, nullable=False, comment="their order in the matrix"),
        sa.Column("better", sa.String(8), nullable=False),
        sa.Column(
            "declared",
            sa.Boolean,
            nullable=False,
            server_default=sa.true(),
            comment="whether the direction was declared",
        ),
        sa.Column(
            "by_median",
            sa.Boolean,
            nullable=False,
            server_default=sa.false(),
            comment="combinations are compared by the median of their differences, else by the mean",
        ),
        sa.Column("low", sa.Double, comment="the ends of the scale that was declared"),
        sa.Column("high", sa.Double),
        sa.Column(
            "on_failure", sa.String(32), comment="the score of a failed cell, or left_out; else the sweep says it"
        ),
        sa.CheckConstraint("better IN ('higher', 'lower')", name="better"),
    )
    op.create_table(
        "scores",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column("metric", sa.String(200), primary_key=True),
        sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.Double),
        sa.Column("error", sa.Text),
    )
    op.create_table(
        "tallies",
        sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
        sa.Column("metric", sa.String(200), primary_key=True),
        sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("n", sa.BigInteger, nullable=False, comment="cells with a score"),
        sa.Column("total", sa.Double, nullable=False, comment="sum of their scores"),
    )
    op.create_table(
        "working",
        sa.Column("runner_id", Id, ref("runners.id"), primary_key=True),
        sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("session_id", Id, nullable=False, index=True),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
        sa.Column(
            "execution_id", Id, nullable=False, comment="that it was claimed for; it continues with what forks off"
        ),
        sa.Column("since", sa.Double, nullable=False),
        comment="the slots of workers that are busy",
    )
    op.create_table(
        "awaiting",
        sa.Column("approval_id", Id, ref("approvals.id"), primary_key=True),
        sa.Column("execution_id", Id, ref("executions.id"), primary_key=True, index=True),
        comment="executions that wait for an answer",
    )
    op.create_table(
        "checkpoints",
        sa.Column("id", Id, primary_key=True),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
        sa.Column("execution_id", Id, ref("executions.id", deferred=True), nullable=False, index=True),
        sa.Column("parent_id", Id),
        sa.Column("position", Json, nullable=False, comment="step, next nodes, arrived at joins, visits"),
        sa.Column("state", Json, nullable=False, comment="key -> digest of its value"),
        sa.Column("writers", Json, nullable=False, comment="[node, variant, node run]"),
        sa.Column("workspace", Digest),
        sa.Column("totals", Json, nullable=False),
        sa.Column("trigger", sa.String(16), nullable=False),
        sa.Column("name", sa.String(200)),
        sa.Column("inside", Json, comment="of one taken inside a node: node_run, node, variant, saved (key -> digest)"),
        sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false(), comment="retention keeps it"),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.CheckConstraint("trigger IN ('step', 'time', 'manual', 'durable', 'error')", name="trigger"),
        sa.Index("ix_checkpoints_inside", "parent_id", **where("inside IS NOT NULL")),
    )
    op.create_table(
        "rollbacks",
        sa.Column("id", Id, primary_key=True),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
        sa.Column("execution_id", Id, ref("executions.id"), nullable=False, index=True),
        sa.Column("from_id", Id, nullable=False, comment="the head of the line that was left"),
        sa.Column("to_id", Id, nullable=False, comment="the checkpoint that was asked for"),
        sa.Column("head_id", Id, nullable=False, comment="the new head, a child of it"),
        sa.Column("status", sa.String(16), nullable=False, comment="what the execution was before"),
        sa.Column("nodes", Json, nullable=False, comment="nodes rolled back, the last first"),
        sa.Column("superseded", Json, nullable=False, comment="executions that had forked from the left line"),
        sa.Column("by", sa.String(255), nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("at", sa.Double, nullable=False, server_default=now()),
        sa.Column("redone_at", sa.Double),
    )
    op.create_table(
        "decisions",
        sa.Column("checkpoint_id", Id, ref("checkpoints.id", deferred=True), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("node", sa.String(200), nullable=False),
        sa.Column("to", sa.String(200), nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("why", sa.Text, nullable=False),
    )
    op.create_table(
        "node_runs",
        sa.Column("id", Id, primary_key=True),
        sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False),
        sa.Column("execution_id", Id, nullable=False, index=True),
        sa.Column("checkpoint_id", Id, ref("checkpoints.id", deferred=True), nullable=False),
        sa.Column("task", sa.String(300), nullable=False, comment="the node, or node and number where it fans out"),
        sa.Column("node", sa.String(200), nullable=False),
        sa.Column("variant", sa.String(200), nullable=False),
        sa.Column("visit", sa.Integer, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("cells", sa.Integer, nullable=False, comment="how many cells take part in it"),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("writes", Json, comment="key -> digest of what the accepted attempt wrote"),
        sa.Column("workspace", Digest),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("duration_s", sa.Double, nullable=False, comment="of the accepted attempt"),
        sa.Column("usd", sa.Double, nullable=False, comment="of the accepted attempt"),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("checkpoint_id", "task", "variant"),
        sa.CheckConstraint("status IN ('running', 'succeeded', 'failed', 'skipped')", name="status"),
        sa.Index("ix_node_runs_sweep_id_node", "sweep_id", "node"),
    )
    op.create_table(
        "attempts",
        sa.Column("node_run_id", Id, ref("node_runs.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("duration_s", sa.Double, nullable=False),
        sa.Column("usd", sa.Double, nullable=False),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("failure", Json),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("stdout", sa.Text, comment="its beginning and its end, where it is long"),
        sa.Column("stderr", sa.Text, comment="the same"),
        sa.CheckConstraint("status IN ('succeeded', 'failed')", name="status"),
    )
    op.create_table(
        "calls",
        sa.Column("id", Id, primary_key=True),
        sa.Column("node_run_id", Id, ref("node_runs.id"), nullable=False, index=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("model", sa.String(200)),
        sa.Column("tool", sa.String(200)),
        sa.Column("prompt", sa.Text, comment="typed JSON"),
        sa.Column("response", sa.Text, comment="typed JSON"),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("usd", sa.Double, nullable=False),
        sa.Column("duration_s", sa.Double),
        sa.Column("at", sa.Double, nullable=False),
    )
    op.create_table(
        "invocations",
        sa.Column("node_run_id", Id, ref("node_runs.id"), primary_key=True),
        sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("tool", sa.String(200), nullable=False),
        sa.Column("arguments", sa.Text, nullable=False, comment="typed JSON"),
        sa.Column("result", sa.Text, comment="typed JSON"),
        sa.Column("status", sa.String(8), nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("duration_s", sa.Double, nullable=False),
        sa.Column("undone_at", sa.Double),
        sa.CheckConstraint("status IN ('done', 'failed', 'undone')", name="status"),
    )
    op.execute("INSERT INTO sessions (id, name) VALUES ('default', 'default')")
