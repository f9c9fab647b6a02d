"""The tables of how executions live: heads, checkpoints, node runs, attempts, and the values and files they share."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.status import EXECUTION, NODE_RUN, OPEN_EXECUTIONS
from wtb.store.tables.column_types import Count, Digest, Id, Json, OrderedJson, Seconds, metadata, one_of, ref, where

_IS_OPEN = f"status IN ({', '.join(repr(status) for status in OPEN_EXECUTIONS)})"

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
    # As text, which takes PostgreSQL half the bytes of JSONB for values as small as these.
    sa.Column("combinations", OrderedJson, nullable=False, comment="numbers of the combinations that it stands for"),
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
    sa.Column("stalled_at", Seconds, comment="since when its running node has reported nothing; null while it reports"),
    sa.Column("deferred", Json, comment="node -> its queue; of one that begins once others come to what differs"),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("finished_at", Seconds),
    sa.Column("ended_transaction", sa.BigInteger, comment="where the log has its end and those of its cells"),
    sa.Column("ended_event", sa.BigInteger, comment="the last of these; see wtb/store/log.py"),
    sa.Column("task_id", Id, comment="the task of workers that it was published in, or that runs or ran it"),
    sa.Column("task_token", sa.BigInteger, comment="its token when it was published; a claim makes another one"),
    sa.Column("published_at", Seconds, comment="when the message of its task was last sent"),
    sa.Column("children", sa.Integer, comment="into how many it forked, if its end in the log is that"),
    one_of("status", EXECUTION),
    sa.CheckConstraint("origin IN ('root', 'fork', 'retry', 'manual')", name="origin"),
    sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name="owner"),
    sa.Index("ix_executions_open", "sweep_id", "status", "id", **where(_IS_OPEN)),
    sa.Index("ix_executions_case", "sweep_id", "case_number", "repeat"),
    sa.Index("ix_executions_ended", "sweep_id", "ended_transaction", "ended_event", **where("ended_event IS NOT NULL")),
    sa.Index("ix_executions_begun", "sweep_id", "id", **where("status = 'pending' AND head_id IS NOT NULL")),
    sa.Index("ix_executions_owner_id", "owner_id", **where("owner_id IS NOT NULL")),
    sa.Index("ix_executions_published", "task_id", **where("status = 'pending' AND task_token = token")),
    sa.Index("ix_executions_deferred", "sweep_id", **where("deferred IS NOT NULL")),
)

# In the text of a statement, and no parameter: where PostgreSQL plans a prepared statement for whatever its parameters
# may be, it cannot use an index of open executions only, and reads them all.
is_pending: sa.ColumnElement[bool] = executions.c.status == sa.literal_column("'pending'")
is_running: sa.ColumnElement[bool] = executions.c.status == sa.literal_column("'running'")
# The same, for those of all sweeps: there is no index of leases, since each renewal would make an entry in every index
# of its execution. Those that somebody owns are as many as there are slots.
is_leased: sa.ColumnElement[bool] = sa.and_(is_running, executions.c.owner_id.is_not(None))
# A publication is void once the execution is claimed or released: either gives it another token.
is_published: sa.ColumnElement[bool] = sa.and_(is_pending, executions.c.task_token == executions.c.token)
_is_new: sa.ColumnElement[bool] = executions.c.task_token.is_distinct_from(executions.c.token)
is_unpublished: sa.ColumnElement[bool] = sa.and_(is_pending, _is_new)


# Triggers that reject an execution that completes although its head has next nodes or a running node run: its cells
# would succeed with the state from before their last node. No CHECK can read another table. The flush writes
# checkpoints and node runs first, so that each row is checked as it is written. A batch migration of SQLite makes a
# table anew without its triggers, so it has to create these again.
_UNFINISHED = "a completed execution has next nodes or a running node run at its head"
_COMPLETION_GUARDS = {
    "postgresql": (
        f"""
        CREATE FUNCTION reject_unfinished_execution() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position->'next') > 0)
                OR EXISTS (SELECT FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running')
            THEN
                RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = '{_UNFINISHED}: ' || NEW.id;
            END IF;
            RETURN NEW;
        END $$
        """,
        """
        CREATE TRIGGER execution_completes BEFORE UPDATE ON executions FOR EACH ROW
        WHEN (NEW.status = 'completed' AND OLD.status <> 'completed') EXECUTE FUNCTION reject_unfinished_execution()
        """,
        """
        CREATE TRIGGER execution_is_born_completed BEFORE INSERT ON executions FOR EACH ROW
        WHEN (NEW.status = 'completed') EXECUTE FUNCTION reject_unfinished_execution()
        """,
    ),
    "sqlite": tuple(
        f"""
        CREATE TRIGGER {name} BEFORE {event} ON executions WHEN {condition}
        BEGIN
            SELECT raise(ABORT, '{_UNFINISHED}')
            WHERE EXISTS (
                SELECT 1 FROM checkpoints WHERE id = NEW.head_id AND json_array_length(position, '$.next') > 0
            ) OR EXISTS (SELECT 1 FROM node_runs WHERE checkpoint_id = NEW.head_id AND status = 'running');
        END
        """
        for name, event, condition in (
            ("execution_completes", "UPDATE OF status", "NEW.status = 'completed' AND OLD.status <> 'completed'"),
            ("execution_is_born_completed", "INSERT", "NEW.status = 'completed'"),
        )
    ),
}
# Leases are renewed on the same page, which spares the indexes.
_partly_full = sa.DDL("ALTER TABLE executions SET (fillfactor = 80)")  # type: ignore[no-untyped-call]
sa.event.listen(executions, "after_create", _partly_full.execute_if(dialect="postgresql"))
for _dialect, _statements in _COMPLETION_GUARDS.items():
    for _statement in _statements:
        _guard = sa.DDL(_statement)  # type: ignore[no-untyped-call]
        sa.event.listen(executions, "after_create", _guard.execute_if(dialect=_dialect))

working = sa.Table(
    "working",
    metadata,
    sa.Column("runner_id", Id, ref("runners.id"), primary_key=True),
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("session_id", Id, nullable=False, index=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
    sa.Column("execution_id", Id, nullable=False, comment="that it was claimed for; it continues with what forks off"),
    sa.Column("since", Seconds, nullable=False),
    comment="the slots of workers that are busy",
)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    sa.Column("id", Id, primary_key=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False),
    sa.Column("execution_id", Id, ref("executions.id", deferred=True), nullable=False, index=True),
    sa.Column("parent_id", Id),
    sa.Column("position", OrderedJson, nullable=False, comment="step, next nodes, arrived at joins, visits"),
    sa.Column("state", OrderedJson, nullable=False, comment="key -> digest of its value"),
    sa.Column("writers", OrderedJson, nullable=False, comment="[node, variant, node run]"),
    sa.Column("workspace", Digest),
    sa.Column("totals", OrderedJson, nullable=False),
    sa.Column("trigger", sa.String(16), nullable=False),
    sa.Column("name", sa.String(200)),
    sa.Column("inside", Json, comment="of one taken inside a node: node_run, node, variant, saved (key -> digest)"),
    sa.Column("pinned", sa.Boolean, nullable=False, server_default=sa.false(), comment="retention keeps it"),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("created_transaction", sa.BigInteger, comment="where the log has that it was made; see wtb/store/log.py"),
    sa.Column("created_event", sa.BigInteger),
    sa.CheckConstraint("trigger IN ('step', 'time', 'manual', 'durable', 'error')", name="trigger"),
    sa.Index("ix_checkpoints_created", "sweep_id", "created_transaction", "created_event"),
    sa.Index("ix_checkpoints_pinned", "sweep_id", **where("pinned")),
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
    sa.Column("writes", OrderedJson, comment="key -> digest of what the accepted attempt wrote"),
    sa.Column("workspace", Digest),
    sa.Column("started_at", Seconds, nullable=False),
    sa.Column("duration_s", sa.Double, nullable=False, comment="of the accepted attempt"),
    sa.Column("usd", sa.Double, nullable=False, comment="of the accepted attempt"),
    sa.Column("tokens_in", Count, nullable=False),
    sa.Column("tokens_out", Count, nullable=False),
    sa.Column("started_transaction", sa.BigInteger, comment="where the log has its start; see wtb/store/log.py"),
    sa.Column("started_event", sa.BigInteger),  # null beside a transaction: its start is right before its success
    sa.Column("ended_transaction", sa.BigInteger, comment="where the log has its success"),
    sa.Column("ended_event", sa.BigInteger),
    sa.Column("ended_at", Seconds, comment="when it succeeded"),
    sa.Column("replaces", sa.String(200), comment="the default variant, if the first visit applies another one"),
    sa.Column(
        "begun_at", Seconds, comment="when the first attempt began, if this row describes it: so far, or for good"
    ),
    sa.Column("stdout", sa.Text, comment="of that attempt: its beginning and its end, where it is long"),
    sa.Column("stderr", sa.Text, comment="the same"),
    sa.Column("lag_s", sa.Double, comment="how late the event loop was on average while the accepted attempt ran"),
    sa.UniqueConstraint("checkpoint_id", "task", "variant"),
    one_of("status", NODE_RUN),
    sa.Index(
        "ix_node_runs_started",
        *("sweep_id", "started_transaction", "started_event"),
        **where("started_event IS NOT NULL"),
    ),
    sa.Index("ix_node_runs_ended", "sweep_id", "ended_transaction", "ended_event"),
)

# Those of a `NodeRunRow`: what a node run printed is read by itself.
node_run_columns = [column for column in node_runs.c if column.name not in ("stdout", "stderr")]

# Of such a node run the row has what its only attempt took. They are nearly all of a sweep, and spare a join.
# `wtb/store/attempt_columns.py` reads their attempts together with those that have rows.
took_one_attempt: sa.ColumnElement[bool] = sa.and_(node_runs.c.status == "succeeded", node_runs.c.attempts == 1)

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
    sa.Column("cached", Count, comment="tokens of the prompt that were read from the provider's cache"),
    sa.Column("sweep_id", Id, comment="of calls that the log has"),
    sa.Column("logged_transaction", sa.BigInteger, comment="the position in the log"),
    sa.Column("logged_event", sa.BigInteger),
    sa.Index("ix_calls_logged", "sweep_id", "logged_transaction", "logged_event"),
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
    sa.Column("tried", Json, comment="[to, condition or key, whether it was taken] of each edge that was tried"),
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
