"""The tables of executions, of their checkpoints and decisions, and of the values and files that these share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import sqlalchemy as sa

from wtb.core.documents.executions import Asked
from wtb.core.failures import StoredFailure
from wtb.core.status import EXECUTION, OPEN_EXECUTIONS
from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.core.values import Json as JsonValue
from wtb.store.tables.column_types import (
    Count,
    Digest,
    Id,
    Json,
    OrderedJson,
    Row,
    Seconds,
    column,
    metadata,
    now,
    one_of,
    ref,
    where,
)

_IS_OPEN = f"status IN ({', '.join(repr(status) for status in OPEN_EXECUTIONS)})"


class StoredProcess(TypedDict):
    """The identity of a process, as `ProcessIdentity` has it."""

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float


class UnfinishedRollback(TypedDict):
    """A rollback that has begun and has not ended.

    Attributes:
        to_id: The target.
        redoes: The rollback that it undoes.
        was: The execution's status before.
        superseded: The executions that it supersedes.
        holder: The process that performs it.
        until: Until when that process counts as alive if it is on another machine.
    """

    to_id: str
    redoes: str | None
    was: str
    superseded: list[str]
    holder: StoredProcess | None
    until: float


class AskedRow(Asked):
    """A request of a person for an execution; a rollback is recorded here, too, until it ends."""

    rollback: NotRequired[UnfinishedRollback]


class ExecutionRow(Row):
    """An execution as it is in the database. Times are seconds since the epoch.

    Attributes:
        combinations: The numbers of the combinations that it stands for.
        choices: The variants by node of a manual fork, which stands for no cell.
        asked: The request of a person while it runs: to, by, reason.
        deferred: The queues by node, if it begins once others reach a node that differs.
        ended_transaction: With `ended_event`, the position in the log of its end and those of its cells.
        task_id: The task of workers in which it was published, runs or ran.
        task_token: Its token when it was published; the publication is void once the token has changed.
        published_at: When the message of its task was last sent.
        children: Into how many it forked, if that is its end in the log.
    """

    __tablename__ = "executions"
    id: str = column(Id, primary_key=True)
    session_id: str = column(Id)
    sweep_id: str = column(Id, ref("sweeps.id"))
    parent_id: str | None = column(Id)
    origin: str = column(sa.String(16))
    case_number: int = column(sa.Integer)
    repeat: int = column(sa.Integer)
    # As text, which takes half the bytes of JSONB in PostgreSQL for values as small as these.
    combinations: list[int] = column(OrderedJson, comment="numbers of the combinations that it stands for")
    status: str = column(sa.String(16))
    reason: str | None = column(sa.Text)
    head_id: str | None = column(Id, comment="null until the first step is prepared")
    failure: StoredFailure | None = column(Json)
    owner_id: str | None = column(Id)
    token: int = column(sa.BigInteger, server_default="0")
    lease_until: float | None = column(Seconds)
    kills: int = column(sa.Integer, server_default="0")
    losses: int = column(sa.Integer, server_default="0", comment="leases that ran out in a node")
    queue: str | None = column(sa.String(100))
    choices: dict[str, str] | None = column(
        Json, comment="node -> variant, of one that a person forked: it stands for no cell"
    )
    edited: bool = column(sa.Boolean, server_default=sa.false(), comment="a person changed its state")
    asked: AskedRow | None = column(Json, comment="what a person wants of it while it runs: to, by, reason")
    passed_id: str | None = column(Id, comment="the checkpoint at which nothing holds it up again")
    stalled_at: float | None = column(
        Seconds, comment="since when its running node has reported nothing; null while it reports"
    )
    deferred: dict[str, str] | None = column(
        Json, comment="node -> its queue; of one that begins once others come to what differs"
    )
    created_at: float = column(Seconds)
    finished_at: float | None = column(Seconds)
    ended_transaction: int | None = column(sa.BigInteger, comment="where the log has its end and those of its cells")
    ended_event: int | None = column(sa.BigInteger, comment="the last of these; see wtb/store/log.py")
    task_id: str | None = column(Id, comment="the task of workers that it was published in, or that runs or ran it")
    task_token: int | None = column(sa.BigInteger, comment="its token when it was published; a claim makes another one")
    published_at: float | None = column(Seconds, comment="when the message of its task was last sent")
    children: int | None = column(sa.Integer, comment="into how many it forked, if its end in the log is that")
    __table_args__ = (
        one_of("status", EXECUTION),
        sa.CheckConstraint("origin IN ('root', 'fork', 'retry', 'manual')", name="origin"),
        sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name="owner"),
        sa.Index("ix_executions_open", "sweep_id", "status", "id", **where(_IS_OPEN)),
        sa.Index("ix_executions_case", "sweep_id", "case_number", "repeat"),
        sa.Index(
            "ix_executions_ended", "sweep_id", "ended_transaction", "ended_event", **where("ended_event IS NOT NULL")
        ),
        sa.Index("ix_executions_begun", "sweep_id", "id", **where("status = 'pending' AND head_id IS NOT NULL")),
        sa.Index("ix_executions_owner_id", "owner_id", **where("owner_id IS NOT NULL")),
        sa.Index("ix_executions_published", "task_id", **where("status = 'pending' AND task_token = token")),
        sa.Index("ix_executions_deferred", "sweep_id", **where("deferred IS NOT NULL")),
    )


executions = ExecutionRow.__table__


class NewExecution(TypedDict, total=False):
    """An execution to be inserted, or the columns of one that change.

    `ended_event` is, with its end, the number of events of cells that follow; in a batch, the number of the last one.
    `children` is the number of executions into which it forked, if that is its end.
    """

    id: str
    session_id: str
    sweep_id: str
    parent_id: str | None
    origin: str
    case_number: int
    repeat: int
    combinations: list[int]
    status: str
    reason: str | None
    head_id: str | None
    failure: StoredFailure | None
    owner_id: str | None
    token: int
    lease_until: float | None
    kills: int
    queue: str | None
    task_id: str | None
    choices: Mapping[str, str] | None
    edited: bool
    asked: AskedRow | None
    passed_id: str | None
    stalled_at: float | None
    deferred: Mapping[str, str] | None
    created_at: float
    finished_at: float | None
    ended_transaction: int | None
    ended_event: int | None
    children: int | None


# Literals in the text of a statement: if PostgreSQL plans a prepared statement for whatever its parameters
# may be, it cannot use an index of open executions only, and reads them all.
is_pending: sa.ColumnElement[bool] = executions.c.status == sa.literal_column("'pending'")
is_running: sa.ColumnElement[bool] = executions.c.status == sa.literal_column("'running'")
# The same for all sweeps: there is no index of leases, because each renewal would make an entry in every index
# of its execution. Owned executions are indexed, and as few as there are slots.
is_leased: sa.ColumnElement[bool] = sa.and_(is_running, executions.c.owner_id.is_not(None))
# A publication is void once the execution is claimed or released, because both change its token.
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
# Room on each page: a lease that is renewed on the same page needs no new entries in the indexes.
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
    # A slot has one row, so that it is never busy with two executions.
    sa.Column("slot", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("session_id", Id, nullable=False, index=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), nullable=False, index=True),
    sa.Column("execution_id", Id, nullable=False, comment="that it was claimed for; it continues with what forks off"),
    sa.Column("since", Seconds, nullable=False),
    comment="the slots of workers that are busy",
)


class CheckpointRow(Row):
    """A checkpoint.

    Attributes:
        state: The digests of values by key.
        writers: (node, variant, node run) of the node runs whose writes it has.
        totals: Seconds, US dollars, tokens in and out and node runs of the line up to it.
        inside: The saved state of the visit, if it was taken inside a node.
    """

    __tablename__ = "checkpoints"
    id: str = column(Id, primary_key=True)
    sweep_id: str = column(Id, ref("sweeps.id"))
    execution_id: str = column(Id, ref("executions.id", deferred=True), index=True)
    parent_id: str | None = column(Id)
    position: StoredPosition = column(OrderedJson, comment="step, next nodes, arrived at joins, visits")
    state: dict[str, str] = column(OrderedJson, comment="key -> digest of its value")
    writers: list[list[str]] = column(OrderedJson, comment="[node, variant, node run]")
    workspace: str | None = column(Digest)
    totals: list[Any] = column(OrderedJson)
    trigger: Trigger = column(sa.String(16))
    name: str | None = column(sa.String(200))
    inside: StoredInside | None = column(
        Json, comment="of one taken inside a node: node_run, node, variant, saved (key -> digest)"
    )
    pinned: bool = column(sa.Boolean, server_default=sa.false(), comment="retention keeps it")
    created_at: float = column(Seconds)
    created_transaction: int | None = column(
        sa.BigInteger, comment="where the log has that it was made; see wtb/store/log.py"
    )
    created_event: int | None = column(sa.BigInteger)
    __table_args__ = (
        sa.CheckConstraint("trigger IN ('step', 'time', 'manual', 'durable', 'error')", name="trigger"),
        sa.Index("ix_checkpoints_created", "sweep_id", "created_transaction", "created_event"),
        sa.Index("ix_checkpoints_pinned", "sweep_id", **where("pinned")),
        sa.Index("ix_checkpoints_inside", "parent_id", **where("inside IS NOT NULL")),
    )


checkpoints = CheckpointRow.__table__


class NewCheckpoint(TypedDict):
    """A checkpoint to be inserted. `created_event` is the number of its event in the batch, if it has one."""

    id: str
    sweep_id: str
    execution_id: str
    parent_id: str | None
    position: StoredPosition
    state: Mapping[str, str]
    writers: list[list[str]]
    workspace: str | None
    totals: list[float]
    trigger: Trigger
    name: str | None
    inside: StoredInside | None
    created_at: float
    created_transaction: NotRequired[int | None]
    created_event: NotRequired[int | None]


class DecisionRow(Row):
    """The reason for which an execution went from a node to another one."""

    __tablename__ = "decisions"
    checkpoint_id: str = column(Id, ref("checkpoints.id", deferred=True), primary_key=True)
    number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    node: str = column(sa.String(200))
    to: str = column(sa.String(200))
    key: str | None = column(sa.Text)
    why: str = column(sa.Text)
    tried: list[list[Any]] | None = column(
        Json, comment="[to, condition or key, whether it was taken] of each edge that was tried"
    )


decisions = DecisionRow.__table__


class NewDecision(TypedDict):
    """The reason for which an execution went from a node to another one."""

    checkpoint_id: str
    number: int
    node: str
    to: str
    key: str | None
    why: str
    tried: list[JsonValue]


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


class NewFile(TypedDict):
    """A file that snapshots of a session refer to."""

    session_id: str
    digest: str
    size: int


# Names that another engine chooses, compared byte by byte, because its checkpoints are ordered by their ids.
Name = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

thread_checkpoints = sa.Table(
    "thread_checkpoints",
    metadata,
    sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
    sa.Column("thread_id", Name, primary_key=True),
    sa.Column("namespace", Name, primary_key=True, comment="of a subgraph; empty: of the graph itself"),
    sa.Column("id", Name, primary_key=True),
    sa.Column("parent_id", Name),
    sa.Column("run_id", Name),
    sa.Column("state", Json, nullable=False, comment="channel -> digest of its value"),
    sa.Column("document", sa.Text, nullable=False, comment="typed JSON: rest of the checkpoint, and short values"),
    sa.Column("metadata", Json, nullable=False),
    sa.Column("created_at", Seconds, nullable=False, server_default=now()),
    sa.Index("ix_thread_checkpoints_run_id", "run_id", **where("run_id IS NOT NULL")),
)

thread_writes = sa.Table(
    "thread_writes",
    metadata,
    # No foreign key: writes may be stored before their checkpoint, and each key prolongs a step that waits for it.
    sa.Column("session_id", Id, primary_key=True),
    sa.Column("thread_id", Name, primary_key=True),
    sa.Column("namespace", Name, primary_key=True),
    sa.Column("checkpoint_id", Name, primary_key=True, comment="that they were made from"),
    sa.Column("task_id", Name, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="negative: may be written again"),
    sa.Column("path", Name, nullable=False, comment="of the task: what orders writes of one step"),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("digest", Digest, comment="of its value"),
    sa.Column("value", sa.Text, comment="the value itself, where it is short: typed JSON"),
    sa.CheckConstraint("(digest IS NULL) <> (value IS NULL)", name="value"),
)
