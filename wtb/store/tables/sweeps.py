"""The tables. Times are seconds since the epoch (UTC); the database's own clock decides about leases.

`REVISION` names the migration that leads to exactly these tables; a test holds the two against each other. The tables
of `control` and `threads` are imported from here, too, so that whoever has `metadata` has all of them.
"""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.status import CELL, EXECUTION, NODE_RUN, SWEEP
from wtb.store.tables.column_types import Count, Digest, Id, Json, Seconds, one_of, ref, where
from wtb.store.tables.column_types import metadata as metadata
from wtb.store.tables.column_types import now as now
from wtb.store.tables.column_types import transaction_number as transaction_number
from wtb.store.tables.control import alerts as alerts
from wtb.store.tables.control import approvals as approvals
from wtb.store.tables.control import awaiting as awaiting
from wtb.store.tables.control import budgets as budgets
from wtb.store.tables.control import invocations as invocations
from wtb.store.tables.control import reservations as reservations
from wtb.store.tables.control import rollbacks as rollbacks
from wtb.store.tables.threads import thread_checkpoints as thread_checkpoints
from wtb.store.tables.threads import thread_writes as thread_writes

REVISION = "1000"
ALERTING = "execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"  # events to tell somebody of

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", sa.String(200), nullable=False, unique=True),
    sa.Column("quota", Json),
    sa.Column("archived_at", Seconds),
    sa.Column("deleted_usd", sa.Double, nullable=False, server_default="0", comment="spent by sweeps deleted since"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
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
    sa.Index("ix_runners_session_id", "session_id"),
)

workflows = sa.Table(
    "workflows",
    metadata,
    sa.Column("id", Digest, primary_key=True, comment="SHA-256 of the graph snapshot"),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("version", sa.String(200), nullable=False),
    sa.Column("graph", Json, nullable=False),
)

sweeps = sa.Table(
    "sweeps",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("session_id", Id, ref("sessions.id"), nullable=False, index=True),
    sa.Column("workflow_id", Digest, sa.ForeignKey("workflows.id"), nullable=False, index=True),
    sa.Column("name", sa.String(200), nullable=False, index=True),
    sa.Column("project", sa.String(200)),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("runner_id", Id, comment="the process that runs it by itself, while it does"),
    sa.Column("queued", sa.Boolean, nullable=False, server_default=sa.false(), comment="workers run it"),
    sa.Column("running_since", Seconds, comment="the time of its limit `wall` counts from here"),
    sa.Column("spec", Json, nullable=False, comment="the sweep as it was submitted, and where from"),
    sa.Column("fingerprints", Json, nullable=False, comment="node -> variant -> code fingerprint"),
    sa.Column("kind", sa.String(8), nullable=False, server_default="sweep", comment="sweep, or a single execution"),
    sa.Column("breakpoints", Json, comment="where executions pause, in words"),
    sa.Column("notify", Json, comment="whom to tell of what; null where nobody is to be told"),
    sa.Column("cells", Count, nullable=False),
    sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false(), comment="retention keeps it"),
    sa.Column("collected_usd", sa.Double, nullable=False, server_default="0", comment="of attempts collected since"),
    sa.Column("collected_node_runs", Count, nullable=False, server_default="0"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Column("started_at", Seconds),
    sa.Column("finished_at", Seconds),
    one_of("status", SWEEP),
    sa.Index("ix_sweeps_open", "status", "priority", **where("queued AND status IN ('pending', 'running')")),
    sa.Index("ix_sweeps_notify", "id", **where("notify IS NOT NULL")),
)

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
    sa.UniqueConstraint("sweep_id", "id"),
)

combinations = sa.Table(
    "combinations",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("choices", Json, nullable=False, comment="varied node -> variant"),
)

executions = sa.Table(
    "executions",
    metadata,
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
    sa.Column("lease_until", Seconds),
    sa.Column("kills", sa.Integer, nullable=False, server_default="0"),
    sa.Column("losses", sa.Integer, nullable=False, server_default="0", comment="leases that ran out in a node"),
    sa.Column("queue", sa.String(100)),
    sa.Column("choices", Json, comment="node -> variant, of one that a person forked: it stands for no cell"),
    sa.Column("edited", sa.Boolean, nullable=False, server_default=sa.false(), comment="a person changed its state"),
    sa.Column("asked", Json, comment="what a person wants of it while it runs: to, by, reason"),
    sa.Column("passed_id", Id, comment="the checkpoint at which nothing holds it up again"),
    sa.Column("stalled_at", Seconds, comment="since when a node of it that runs has told nothing; null where it tells"),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("finished_at", Seconds),
    one_of("status", EXECUTION),
    sa.CheckConstraint("origin IN ('root', 'fork', 'retry', 'manual')", name="origin"),
    sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name="owner"),
    sa.Index("ix_executions_sweep_id_status_id", "sweep_id", "status", "id"),
    sa.Index("ix_executions_begun", "sweep_id", "id", **where("status = 'pending' AND head_id IS NOT NULL")),
    sa.Index("ix_executions_owner_id", "owner_id"),
    sa.Index("ix_executions_parent_id", "parent_id"),
    sa.Index("ix_executions_lease_until", "lease_until", **where("status = 'running'")),
)

working = sa.Table(
    "working",
    metadata,
    sa.Column("runner_id", Id, ref("runners.id"), primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("session_id", Id, nullable=False, index=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
    sa.Column("execution_id", Id, nullable=False, comment="that it was claimed for; it goes on with what forks off"),
    sa.Column("since", Seconds, nullable=False),
    comment="the slots of workers that are busy",
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

tallies = sa.Table(
    "tallies",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("metric", sa.String(200), primary_key=True),
    sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("n", Count, nullable=False, comment="cells with a score"),
    sa.Column("total", sa.Double, nullable=False, comment="sum of their scores"),
)

matrices = sa.Table(
    "matrices",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("transaction", sa.BigInteger, nullable=False, server_default="-1", comment="tallied up to this event"),
    sa.Column("event_id", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("tallied_at", Seconds),
    sa.Column("document", Json, comment="the matrix, once the sweep is at its end"),
    sa.Column("frozen_at", Seconds),
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
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
    sa.Column("created_at", Seconds, nullable=False),
    sa.CheckConstraint("trigger IN ('step', 'time', 'manual', 'durable', 'error')", name="trigger"),
    sa.Index("ix_checkpoints_inside", "parent_id", **where("inside IS NOT NULL")),
)

node_runs = sa.Table(
    "node_runs",
    metadata,
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
    sa.Column("started_at", Seconds, nullable=False),
    sa.Column("duration_s", sa.Double, nullable=False, comment="of the accepted attempt"),
    sa.Column("usd", sa.Double, nullable=False, comment="of the accepted attempt"),
    sa.Column("tokens_in", Count, nullable=False),
    sa.Column("tokens_out", Count, nullable=False),
    sa.UniqueConstraint("checkpoint_id", "task", "variant"),
    one_of("status", NODE_RUN),
    sa.Index("ix_node_runs_sweep_id_node", "sweep_id", "node"),
)

attempts = sa.Table(
    "attempts",
    metadata,
    sa.Column("node_run_id", Id, ref("node_runs.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("started_at", Seconds, nullable=False),
    sa.Column("duration_s", sa.Double, nullable=False),
    sa.Column("usd", sa.Double, nullable=False),
    sa.Column("tokens_in", Count, nullable=False),
    sa.Column("tokens_out", Count, nullable=False),
    sa.Column("failure", Json),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("stdout", sa.Text, comment="its beginning and its end, where it is long"),
    sa.Column("stderr", sa.Text, comment="the same"),
    sa.CheckConstraint("status IN ('succeeded', 'failed')", name="status"),
)

calls = sa.Table(
    "calls",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("node_run_id", Id, ref("node_runs.id"), nullable=False, index=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("model", sa.String(200)),
    sa.Column("tool", sa.String(200)),
    sa.Column("prompt", sa.Text, comment="typed JSON"),
    sa.Column("response", sa.Text, comment="typed JSON"),
    sa.Column("tokens_in", Count, nullable=False),
    sa.Column("tokens_out", Count, nullable=False),
    sa.Column("usd", sa.Double, nullable=False),
    sa.Column("duration_s", sa.Double),
    sa.Column("at", Seconds, nullable=False),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("checkpoint_id", Id, ref("checkpoints.id", deferred=True), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("node", sa.String(200), nullable=False),
    sa.Column("to", sa.String(200), nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("why", sa.Text, nullable=False),
)

values = sa.Table(
    "values",
    metadata,
    sa.Column("digest", Digest, primary_key=True),
    sa.Column("data", sa.Text, nullable=False, comment="typed JSON"),
)

files = sa.Table(
    "files",
    metadata,
    sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
    sa.Column("digest", Digest, primary_key=True, comment="of a content or manifest that its snapshots refer to"),
    sa.Column("size", Count, nullable=False, comment="bytes"),
    sa.Index("ix_files_digest", "digest"),
)

cells = sa.Table(
    "cells",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("execution_id", Id, index=True, comment="whose outcome it has, or the one that holds it"),
    sa.Column("elapsed_s", sa.Double, comment="as if alone: accepted attempts, the longest of a parallel step"),
    sa.Column("usd", sa.Double),
    sa.Column("tokens_in", Count),
    sa.Column("tokens_out", Count),
    sa.Column("node_runs", Count),
    sa.Column("failure", Json),
    sa.Column("edited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("finished_at", Seconds),
    one_of("status", CELL),
    postgresql_with={"fillfactor": 50},  # each row is updated twice: on its own page that spares the indexes
)

scores = sa.Table(
    "scores",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("metric", sa.String(200), primary_key=True),
    sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("value", sa.Double),
    sa.Column("error", sa.Text),
)

metrics = sa.Table(
    "metrics",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False, comment="their order in the matrix"),
    sa.Column("better", sa.String(8), nullable=False),
    sa.Column("declared", sa.Boolean, nullable=False, server_default=sa.true(), comment="whether anybody said better"),
    sa.Column(
        "by_median",
        sa.Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="combinations are compared by the median of their differences, else by the mean",
    ),
    sa.Column("low", sa.Double, comment="the ends of the scale that was declared"),
    sa.Column("high", sa.Double),
    sa.Column("on_failure", sa.String(32), comment="the score of a failed cell, or left_out; else the sweep says it"),
    sa.CheckConstraint("better IN ('higher', 'lower')", name="better"),
)

baselines = sa.Table(
    "baselines",
    metadata,
    sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column(
        "sweep_id", Id, sa.ForeignKey("sweeps.id"), nullable=False, index=True, comment="not removed while it is"
    ),
    sa.Column("set_at", Seconds, nullable=False, server_default=now()),
    sa.Column("noise_floor", Json, comment="what repeats of the sweep differ by; null where nobody made any"),
)

schedules = sa.Table(
    "schedules",
    metadata,
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
    sa.Column("notify", Json, nullable=False, comment="whom to tell"),
    sa.Column("next_at", Seconds, comment="its next fire; null while it is paused"),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.CheckConstraint("status IN ('active', 'paused')", name="status"),
    sa.CheckConstraint("missed IN ('skip', 'once')", name="missed"),
    sa.Index("ix_schedules_next_at", "next_at", **where("status = 'active'")),
)

fires = sa.Table(
    "fires",
    metadata,
    sa.Column("schedule_id", Id, ref("schedules.id"), primary_key=True),
    sa.Column("fire_at", Seconds, primary_key=True, comment="when it was due"),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", Seconds, comment="held until then; of one at its end: somebody is to be told"),
    sa.Column("tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("sweep_id", Id, unique=True, comment="its sweep, set in the transaction that submits it"),
    sa.Column("baseline_id", Id, comment="the sweep that it was compared with"),
    sa.Column("verdict", sa.String(16)),
    sa.Column("why", Json, comment="sentences"),
    sa.Column("notified_at", Seconds),
    sa.Column("notify_tries", sa.Integer, nullable=False, server_default="0"),
    sa.Column("notify_error", sa.Text),
    sa.Column("started_at", Seconds),
    sa.Column("finished_at", Seconds),
    sa.CheckConstraint("status IN ('due', 'starting', 'running', 'judged', 'failed')", name="status"),
    sa.CheckConstraint(
        "verdict IN ('better', 'same', 'not worse', 'unclear', 'worse', 'cannot tell', 'failed')", name="verdict"
    ),
    sa.Index("ix_fires_open", "status", **where("status IN ('due', 'starting', 'running') OR lease_until IS NOT NULL")),
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
