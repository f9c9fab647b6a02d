"""The tables of what people and budgets decide, and of what is sent to whom: alerts, and traces to collectors."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.store.tables.column_types import Count, Id, Json, Seconds, metadata, now, ref, where

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("session_id", Id, nullable=False),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
    sa.Column("checkpoint_id", Id, nullable=False),
    sa.Column("key", sa.String(64), nullable=False, comment="of the question: one answer serves all that ask it here"),
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
    sa.Column("asked_at", Seconds, nullable=False, server_default=now()),
    sa.Column("expires_at", Seconds),
    sa.Column("answered_at", Seconds),
    sa.UniqueConstraint("checkpoint_id", "key"),
    sa.CheckConstraint("kind IN ('ask', 'before', 'after', 'error', 'action')", name="kind"),
    sa.CheckConstraint("status IN ('open', 'answered', 'expired', 'withdrawn')", name="status"),
    sa.CheckConstraint("(status IN ('answered', 'expired')) = (answer IS NOT NULL)", name="answer"),
    sa.Index("ix_approvals_open", "expires_at", **where("status = 'open'")),
)

awaiting = sa.Table(
    "awaiting",
    metadata,
    sa.Column("approval_id", Id, ref("approvals.id"), primary_key=True),
    sa.Column("execution_id", Id, ref("executions.id"), primary_key=True, index=True),
    comment="executions that wait for an answer",
)

rollbacks = sa.Table(
    "rollbacks",
    metadata,
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
    sa.Column("at", Seconds, nullable=False, server_default=now()),
    sa.Column("redone_at", Seconds),
)

invocations = sa.Table(
    "invocations",
    metadata,
    sa.Column("node_run_id", Id, ref("node_runs.id"), primary_key=True),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tool", sa.String(200), nullable=False),
    sa.Column("arguments", sa.Text, nullable=False, comment="typed JSON"),
    sa.Column("result", sa.Text, comment="typed JSON"),
    sa.Column("status", sa.String(8), nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("duration_s", sa.Double, nullable=False),
    sa.Column("undone_at", Seconds),
    sa.Column("version", sa.String(200), comment="of the tool of a server: a digest of what the server said of it"),
    sa.Column("sweep_id", Id, comment="of calls that the log has"),
    sa.Column("logged_transaction", sa.BigInteger, comment="the position in the log"),
    sa.Column("logged_event", sa.BigInteger),
    sa.CheckConstraint("status IN ('done', 'failed', 'undone')", name="status"),
    sa.Index("ix_invocations_logged", "sweep_id", "logged_transaction", "logged_event"),
)

budgets = sa.Table(
    "budgets",
    metadata,
    sa.Column("scope", sa.String(8), primary_key=True),
    sa.Column(
        "key", sa.String(420), primary_key=True, comment="id of the session or sweep, name of the project or token"
    ),
    sa.Column("node", sa.String(200), primary_key=True, server_default="", comment="of a sweep; empty: all of it"),
    sa.Column("kind", sa.String(10), primary_key=True),
    sa.Column("most", sa.Double, nullable=False),
    sa.Column("spent", sa.Double, nullable=False, server_default="0"),
    sa.Column("warned", sa.Double, nullable=False, server_default="0", comment="share of it that was warned of last"),
    sa.CheckConstraint("scope IN ('session', 'project', 'sweep', 'token')", name="scope"),
    sa.CheckConstraint("kind IN ('usd', 'tokens', 'node_runs')", name="kind"),
)

reservations = sa.Table(
    "reservations",
    metadata,
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

scorings = sa.Table(
    "scorings",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
    sa.Column("evaluators", Json, nullable=False, comment="as in a sweep file"),
    sa.Column("queue", sa.String(200), nullable=False, comment="of the workers that may do it; empty: the default one"),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("asked_at", Seconds, nullable=False, server_default=now()),
    sa.Column("status", sa.String(10), nullable=False, server_default="pending"),
    sa.Column("owner_id", Id, comment="the runner that does it"),
    sa.Column("lease_until", Seconds),
    sa.Column("token", sa.Integer, nullable=False, server_default="0", comment="grows with each claim"),
    sa.Column("scores", Count, nullable=False, server_default="0", comment="that were written since it was claimed"),
    sa.Column("unjudged", Count, nullable=False, server_default="0", comment="executions that judges may cost no more"),
    sa.Column("reason", sa.Text, comment="why some are left, or why it failed or was cancelled"),
    sa.Column("ended_at", Seconds),
    sa.Column("published_at", Seconds, comment="when its task was last sent; null while it waits for that"),
    sa.CheckConstraint("status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')", name="status"),
    sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name="owner"),
    sa.CheckConstraint("(owner_id IS NULL) = (lease_until IS NULL)", name="lease"),
    sa.Index("ix_scorings_open", "queue", **where("status IN ('pending', 'running')")),
    comment="what workers are asked to score again",
)

alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("event_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("target", sa.Integer, primary_key=True, autoincrement=False, comment="place in the sweep's `notify`"),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
    sa.Column("at", Seconds, nullable=False, server_default=now()),
    sa.Column("sent_at", Seconds),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_until", Seconds, comment="a notification is being sent, or waits for its next try"),
    sa.Column("error", sa.Text, comment="why its last notification failed"),
    sa.Index("ix_alerts_open", "sweep_id", **where("sent_at IS NULL")),
    comment="events to notify somebody of",
)

exporters = sa.Table(
    "exporters",
    metadata,
    sa.Column("endpoint", sa.String(500), primary_key=True, comment="of a collector"),
    sa.Column("began_at", Seconds, nullable=False, server_default=now(), comment="sweeps that had ended are not sent"),
    sa.Column("owner_id", Id, comment="the process that sends"),
    sa.Column("lease_until", Seconds),
    sa.Column("spans", Count, nullable=False, server_default="0", comment="that were sent, those sent again included"),
    sa.Column("rejected", Count, nullable=False, server_default="0", comment="those that it refused"),
    sa.Column("sent_at", Seconds, comment="when it last took some"),
    sa.Column("failing_since", Seconds),
    sa.Column("error", sa.Text, comment="why it takes none"),
    sa.CheckConstraint("(failing_since IS NULL) = (error IS NULL)", name="failing"),
    comment="collectors that are sent traces",
)

exports = sa.Table(
    "exports",
    metadata,
    sa.Column("endpoint", sa.String(500), ref("exporters.endpoint"), primary_key=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True, index=True),
    sa.Column("transaction", sa.BigInteger, nullable=False, comment="up to where of its log everything was sent"),
    sa.Column("event", sa.BigInteger, nullable=False),
)
