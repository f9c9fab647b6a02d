"""The tables of node runs, their attempts and the calls that these recorded."""

from __future__ import annotations

from typing import Final, NotRequired, TypedDict

import sqlalchemy as sa

from wtb.core.failures import StoredFailure
from wtb.core.status import NODE_RUN
from wtb.store.tables.column_types import Count, Digest, Id, Json, OrderedJson, Row, Seconds, column, one_of, ref, where


class NodeRunRow(Row):
    """A node run: a task under a variant, from a checkpoint.

    Attributes:
        attempts: How many it has had.
        cells: The number of cells that share it.
        writes: The digests of its writes by key.
        begun_at: When its first attempt began, as long as that has no row of its own.
        lag_s: By how much the event loop was late on average while the accepted attempt ran, if that was measured.
    """

    __tablename__ = "node_runs"
    id: str = column(Id, primary_key=True)
    sweep_id: str = column(Id, ref("sweeps.id"))
    execution_id: str = column(Id, index=True)
    checkpoint_id: str = column(Id, ref("checkpoints.id", deferred=True))
    task: str = column(sa.String(300), comment="the node, or node and number where it fans out")
    node: str = column(sa.String(200))
    variant: str = column(sa.String(200))
    visit: int = column(sa.Integer)
    status: str = column(sa.String(16))
    attempts: int = column(sa.Integer)
    cells: int = column(sa.Integer, comment="how many cells take part in it")
    fingerprint: str = column(sa.String(64))
    writes: dict[str, str] | None = column(OrderedJson, comment="key -> digest of what the accepted attempt wrote")
    workspace: str | None = column(Digest)
    started_at: float = column(Seconds)
    duration_s: float = column(sa.Double, comment="of the accepted attempt")
    usd: float = column(sa.Double, comment="of the accepted attempt")
    tokens_in: int = column(Count)
    tokens_out: int = column(Count)
    started_transaction: int | None = column(sa.BigInteger, comment="where the log has its start; see wtb/store/log.py")
    started_event: int | None = column(
        sa.BigInteger
    )  # null beside a transaction: its start is right before its success
    ended_transaction: int | None = column(sa.BigInteger, comment="where the log has its success")
    ended_event: int | None = column(sa.BigInteger)
    ended_at: float | None = column(Seconds, comment="when it succeeded")
    replaces: str | None = column(sa.String(200), comment="the default variant, if the first visit applies another one")
    begun_at: float | None = column(
        Seconds, comment="when the first attempt began, if this row describes it: so far, or for good"
    )
    lag_s: float | None = column(
        sa.Double, comment="how late the event loop was on average while the accepted attempt ran"
    )
    __table_args__ = (
        sa.Column("stdout", sa.Text, comment="of that attempt: its beginning and its end, where it is long"),
        sa.Column("stderr", sa.Text, comment="the same"),
        # Executions at one checkpoint share the node run of a task under a variant.
        sa.UniqueConstraint("checkpoint_id", "task", "variant"),
        one_of("status", NODE_RUN),
        sa.Index(
            "ix_node_runs_started",
            *("sweep_id", "started_transaction", "started_event"),
            **where("started_event IS NOT NULL"),
        ),
        sa.Index("ix_node_runs_ended", "sweep_id", "ended_transaction", "ended_event"),
    )


node_runs = NodeRunRow.__table__


class NewNodeRun(TypedDict, total=False):
    """A node run to be inserted, or the columns of one that change. Events are numbers in the batch."""

    id: str
    sweep_id: str
    execution_id: str
    checkpoint_id: str
    task: str
    node: str
    variant: str
    visit: int
    status: str
    attempts: int
    cells: int
    fingerprint: str
    writes: dict[str, str] | None
    workspace: str | None
    started_at: float
    duration_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    started_transaction: int | None
    started_event: int | None
    ended_transaction: int | None
    ended_event: int | None
    ended_at: float | None
    replaces: str | None
    begun_at: float | None
    lag_s: float | None
    stdout: str | None
    stderr: str | None


# The columns of a node run that change when its first attempt gets a row of its own.
FIRST_HAS_ROW: Final[NewNodeRun] = {
    "begun_at": None,
    "duration_s": 0.0,
    "usd": 0.0,
    "tokens_in": 0,
    "tokens_out": 0,
    "stdout": None,
    "stderr": None,
}


# The columns of a `NodeRunRow`: outputs may be large, and are read by themselves.
node_run_columns = [node_runs.c[name] for name in NodeRunRow.__struct_fields__]

# The row of such a node run describes its only attempt. These are nearly all of a sweep, and need no join.
# `wtb/store/cell_status.py` reads their attempts together with those that have rows.
took_one_attempt: sa.ColumnElement[bool] = sa.and_(node_runs.c.status == "succeeded", node_runs.c.attempts == 1)


class AttemptRow(Row):
    """An attempt of a node run."""

    __tablename__ = "attempts"
    node_run_id: str = column(Id, ref("node_runs.id"), primary_key=True)
    number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    status: str = column(sa.String(16))
    started_at: float = column(Seconds)
    duration_s: float = column(sa.Double)
    usd: float = column(sa.Double)
    tokens_in: int = column(Count)
    tokens_out: int = column(Count)
    failure: StoredFailure | None = column(Json)
    fingerprint: str = column(sa.String(64))
    stdout: str | None = column(sa.Text, comment="its beginning and its end, where it is long")
    stderr: str | None = column(sa.Text, comment="the same")
    __table_args__ = (sa.CheckConstraint("status IN ('succeeded', 'failed')", name="status"),)


attempts = AttemptRow.__table__


class NewAttempt(TypedDict):
    """An attempt to be inserted; `again` if it was written before, while it ran."""

    node_run_id: str
    number: int
    status: str
    started_at: float
    duration_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    failure: StoredFailure | None
    fingerprint: str
    stdout: str | None
    stderr: str | None
    again: NotRequired[bool]


class CallRow(Row):
    """A call of a model or tool that an attempt recorded; prompt and response are typed JSON."""

    __tablename__ = "calls"
    id: str = column(Id, primary_key=True)
    node_run_id: str = column(Id, ref("node_runs.id"), index=True)
    attempt: int = column(sa.Integer)
    model: str | None = column(sa.String(200))
    tool: str | None = column(sa.String(200))
    prompt: str | None = column(sa.Text, comment="typed JSON")
    response: str | None = column(sa.Text, comment="typed JSON")
    tokens_in: int = column(Count)
    tokens_out: int = column(Count)
    usd: float = column(sa.Double)
    duration_s: float | None = column(sa.Double)
    at: float = column(Seconds)
    cached: int | None = column(Count, comment="tokens of the prompt that were read from the provider's cache")
    sweep_id: str | None = column(Id, comment="of calls that the log has")
    logged_transaction: int | None = column(sa.BigInteger, comment="the position in the log")
    logged_event: int | None = column(sa.BigInteger)
    __table_args__ = (sa.Index("ix_calls_logged", "sweep_id", "logged_transaction", "logged_event"),)


calls = CallRow.__table__


class Logged(TypedDict):
    """A row from which the log derives an event; the flush replaces its position."""

    sweep_id: str
    logged_transaction: int | None
    logged_event: int | None


class NewCall(Logged):
    """A call of a model or tool; prompt and response are typed JSON."""

    id: str
    node_run_id: str
    attempt: int
    model: str | None
    tool: str | None
    prompt: str | None
    response: str | None
    tokens_in: int
    tokens_out: int
    usd: float
    duration_s: float | None
    at: float
    cached: int | None
