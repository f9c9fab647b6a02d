"""The tables of executions, and of the slots that are busy with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

import sqlalchemy as sa

from wtb.core.documents.executions import Asked
from wtb.core.failures import StoredFailure
from wtb.core.status import EXECUTION, OPEN_EXECUTIONS
from wtb.store.tables.column_types import Id, Json, OrderedJson, Seconds, metadata, one_of, ref, where
from wtb.store.tables.row import Row, column

_IS_OPEN = f"status IN ({', '.join(repr(status) for status in OPEN_EXECUTIONS)})"


class StoredProcess(TypedDict):
    """The identity of a process, as `ProcessIdentity` has it."""

    id: str
    host: str
    boot: str
    pid: int
    process_started_at: float


class UnfinishedRollback(TypedDict):
    """A rollback that has begun and has not come to its end.

    redoes: the rollback that it takes back. was: the execution's status before. holder: the process that is at it,
    until when it is believed to be.
    """

    to_id: str
    redoes: str | None
    was: str
    superseded: list[str]
    holder: StoredProcess | None
    until: float


class AskedRow(Asked):
    """What a person has asked of an execution; a rollback waits there, too, until it is done."""

    rollback: NotRequired[UnfinishedRollback]


class ExecutionRow(Row):
    """An execution as it stands in the database. Times are seconds since the epoch.

    Attributes:
        combinations: Numbers of the combinations that it stands for.
        choices: Node -> variant, of one that a person forked: it stands for no cell.
        asked: What a person wants of it while it runs: to, by, reason.
        deferred: Node -> its queue, of one that begins once others come to what differs.
        ended_transaction: Where the log has its end and those of its cells, up to `ended_event`.
        task_id: The task of workers in which it was published, or that runs or ran it.
        task_token: Its token when it was published; the publication is void once it has another one.
        published_at: When the message of its task was last sent.
        children: Into how many it forked, if its end in the log is that.
    """

    __tablename__ = "executions"
    id: str = column(Id, primary_key=True)
    session_id: str = column(Id)
    sweep_id: str = column(Id, ref("sweeps.id"))
    parent_id: str | None = column(Id)
    origin: str = column(sa.String(16))
    case_number: int = column(sa.Integer)
    repeat: int = column(sa.Integer)
    # As text, which takes PostgreSQL half the bytes of JSONB for values as small as these.
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
    """An execution that begins, or what changes of one.

    ended_event: of one that says its end, how many events of cells follow it; in a batch the last one's number.
    children: into how many it forked, if its end is that.
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
