"""The tables of decisions by people and budgets, of alerts, and of traces for collectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

import sqlalchemy as sa

from wtb.core.documents.plan import BudgetKind, BudgetScope
from wtb.core.questions import Kind
from wtb.core.values import Json as JsonValue
from wtb.store.tables.column_types import Count, Id, Json, Row, Seconds, column, metadata, now, ref, where
from wtb.store.tables.node_runs import Logged


class StoredAnswer(TypedDict):
    """The answer to a question as it is stored.

    Attributes:
        action: The action.
        choice: The chosen option.
        feedback: The text of the person.
        value: A value as typed JSON.
        set: The digests of new values by key of the state.
        heads: The checkpoints that this made.
    """

    action: Literal["approve", "reject", "modify", "expired"]
    choice: str | None
    feedback: str | None
    value: NotRequired[str | None]
    set: Mapping[str, str]
    heads: list[str]


class StoredDefault(TypedDict):
    """The answer to a question when its timeout is over."""

    choice: str | None


class QuestionRow(Row):
    """A question to a person; `context` is typed JSON."""

    __tablename__ = "approvals"
    id: str = column(Id, primary_key=True)
    session_id: str = column(Id)
    sweep_id: str = column(Id, ref("sweeps.id"), index=True)
    checkpoint_id: str = column(Id)
    key: str = column(sa.String(64), comment="of the question: one answer serves all that ask it here")
    kind: Kind = column(sa.String(8))
    node: str = column(sa.String(200), comment="that asks, or that comes next", nullable=True)
    number: int = column(sa.Integer, comment="of questions of its node run, or attempts so far")
    question: str = column(sa.Text)
    options: list[str] | None = column(Json, comment="texts to choose from")
    context: str | None = column(sa.Text, comment="typed JSON: what to look at")
    default: StoredDefault | None = column(Json, comment="the answer when time is up; null where there is none")
    status: str = column(sa.String(12))
    answer: StoredAnswer | None = column(Json, comment="action, choice, feedback, set (key -> digest)")
    answered_by: str | None = column(sa.String(255))
    asked_at: float = column(Seconds, server_default=now())
    expires_at: float | None = column(Seconds)
    answered_at: float | None = column(Seconds)
    __table_args__ = (
        sa.UniqueConstraint("checkpoint_id", "key"),
        sa.CheckConstraint("kind IN ('ask', 'before', 'after', 'error', 'action')", name="kind"),
        sa.CheckConstraint("status IN ('open', 'answered', 'expired', 'withdrawn')", name="status"),
        sa.CheckConstraint("(status IN ('answered', 'expired')) = (answer IS NOT NULL)", name="answer"),
        sa.Index("ix_approvals_open", "expires_at", **where("status = 'open'")),
    )


approvals = QuestionRow.__table__


class NewQuestion(TypedDict):
    """A question to a person at a checkpoint. `timeout` is the number of seconds until its default counts; it is no
    column.
    """

    id: str
    session_id: str
    sweep_id: str
    checkpoint_id: str
    key: str
    kind: Kind
    node: str
    number: int
    question: str
    options: list[str] | None
    context: str | None
    default: StoredDefault | None
    status: str
    timeout: float | None


awaiting = sa.Table(
    "awaiting",
    metadata,
    sa.Column("approval_id", Id, ref("approvals.id"), primary_key=True),
    sa.Column("execution_id", Id, ref("executions.id"), primary_key=True, index=True),
    comment="executions that wait for an answer",
)


class RollbackRow(Row):
    """A rollback of an execution: its head and target, the part that was left, and the person."""

    __tablename__ = "rollbacks"
    id: str = column(Id, primary_key=True)
    sweep_id: str = column(Id, ref("sweeps.id"), index=True)
    execution_id: str = column(Id, ref("executions.id"), index=True)
    from_id: str = column(Id, comment="the head of the line that was left")
    to_id: str = column(Id, comment="the checkpoint that was asked for")
    head_id: str = column(Id, comment="the new head, a child of it")
    status: str = column(sa.String(16), comment="what the execution was before")
    nodes: list[str] = column(Json, comment="nodes rolled back, the last first")
    superseded: list[str] = column(Json, comment="executions that had forked from the left line")
    by: str = column(sa.String(255))
    reason: str | None = column(sa.Text)
    at: float = column(Seconds, server_default=now())
    redone_at: float | None = column(Seconds)


rollbacks = RollbackRow.__table__


class NewRollback(TypedDict):
    """A rollback that was made."""

    id: str
    sweep_id: str
    execution_id: str
    from_id: str
    to_id: str
    head_id: str
    status: str
    nodes: list[str]
    superseded: list[str]
    by: str
    reason: str | None


class InvocationRow(Row):
    """A call of a declared tool; arguments and result are typed JSON."""

    __tablename__ = "invocations"
    node_run_id: str = column(Id, ref("node_runs.id"), primary_key=True)
    attempt: int = column(sa.Integer, primary_key=True, autoincrement=False)
    number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    tool: str = column(sa.String(200))
    arguments: str = column(sa.Text, comment="typed JSON")
    result: str | None = column(sa.Text, comment="typed JSON")
    status: str = column(sa.String(8))
    error: str | None = column(sa.Text)
    at: float = column(Seconds)
    duration_s: float = column(sa.Double)
    undone_at: float | None = column(Seconds)
    version: str | None = column(
        sa.String(200), comment="of the tool of a server: a digest of its description by the server"
    )
    sweep_id: str | None = column(Id, comment="of calls that the log has")
    logged_transaction: int | None = column(sa.BigInteger, comment="the position in the log")
    logged_event: int | None = column(sa.BigInteger)
    __table_args__ = (
        sa.CheckConstraint("status IN ('done', 'failed', 'undone')", name="status"),
        sa.Index("ix_invocations_logged", "sweep_id", "logged_transaction", "logged_event"),
    )


invocations = InvocationRow.__table__


class NewInvocation(Logged):
    """A call of a declared tool; arguments and result are typed JSON."""

    node_run_id: str
    attempt: int
    number: int
    tool: str
    arguments: str
    result: str | None
    error: str | None
    at: float
    duration_s: float
    status: str
    version: str | None


class BudgetRow(Row):
    """A budget: of a session, project, token or sweep (`scope`, `key`), or of a node of a sweep.

    Attributes:
        kind: usd, tokens or node_runs.
        warned: The share of it at which the last warning was logged.
    """

    __tablename__ = "budgets"
    scope: BudgetScope = column(sa.String(8), primary_key=True)
    key: str = column(
        sa.String(420), primary_key=True, comment="id of the session or sweep, name of the project or token"
    )
    node: str = column(sa.String(200), primary_key=True, server_default="", comment="of a sweep; empty: all of it")
    kind: BudgetKind = column(sa.String(10), primary_key=True)
    most: float = column(sa.Double)
    spent: float = column(sa.Double, server_default="0")
    warned: float = column(sa.Double, server_default="0", comment="share of it that was warned of last")
    __table_args__ = (
        sa.CheckConstraint("scope IN ('session', 'project', 'sweep', 'token')", name="scope"),
        sa.CheckConstraint("kind IN ('usd', 'tokens', 'node_runs')", name="kind"),
    )


budgets = BudgetRow.__table__

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


class ScoringRow(Row):
    """A request to score a sweep again on workers. `evaluators` is as in a sweep file, `token` that of the present
    claim.
    """

    __tablename__ = "scorings"
    id: str = column(Id, primary_key=True)
    sweep_id: str = column(Id, ref("sweeps.id"), index=True)
    evaluators: list[dict[str, JsonValue]] = column(Json, comment="as in a sweep file")
    queue: str = column(sa.String(200), comment="of the workers that may do it; empty: the default one")
    by: str = column(sa.String(255))
    asked_at: float = column(Seconds, server_default=now())
    status: str = column(sa.String(10), server_default="pending")
    owner_id: str | None = column(Id, comment="the runner that does it")
    lease_until: float | None = column(Seconds)
    token: int = column(sa.Integer, server_default="0", comment="grows with each claim")
    scores: int = column(Count, server_default="0", comment="that were written since it was claimed")
    unjudged: int = column(Count, server_default="0", comment="executions that judges may cost no more")
    reason: str | None = column(sa.Text, comment="why some are left, or why it failed or was cancelled")
    ended_at: float | None = column(Seconds)
    published_at: float | None = column(Seconds, comment="when its task was last sent; null while it waits for that")
    __table_args__ = (
        sa.CheckConstraint("status IN ('pending', 'running', 'succeeded', 'failed', 'cancelled')", name="status"),
        sa.CheckConstraint("(status = 'running') = (owner_id IS NOT NULL)", name="owner"),
        sa.CheckConstraint("(owner_id IS NULL) = (lease_until IS NULL)", name="lease"),
        sa.Index("ix_scorings_open", "queue", **where("status IN ('pending', 'running')")),
        {"comment": "what workers are asked to score again"},
    )


scorings = ScoringRow.__table__

alerts = sa.Table(
    "alerts",
    metadata,
    # One row for each event and target, so that an alert is created once however many processes look for events.
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


class ExporterRow(Row):
    """A collector that receives traces.

    Attributes:
        began_at: Sweeps that had ended at this time are not sent by themselves.
        owner_id: The process that sends.
        spans: How many were sent, including repeated ones.
        rejected: How many of them it rejected.
        sent_at: When it last accepted some.
        error: The error for which it accepts none.
    """

    __tablename__ = "exporters"
    endpoint: str = column(sa.String(500), primary_key=True, comment="of a collector")
    began_at: float = column(Seconds, server_default=now(), comment="sweeps that had ended are not sent")
    owner_id: str | None = column(Id, comment="the process that sends")
    lease_until: float | None = column(Seconds)
    spans: int = column(Count, server_default="0", comment="that were sent, those sent again included")
    rejected: int = column(Count, server_default="0", comment="those that it refused")
    sent_at: float | None = column(Seconds, comment="when it last took some")
    failing_since: float | None = column(Seconds)
    error: str | None = column(sa.Text, comment="why it takes none")
    __table_args__ = (
        sa.CheckConstraint("(failing_since IS NULL) = (error IS NULL)", name="failing"),
        {"comment": "collectors that are sent traces"},
    )


exporters = ExporterRow.__table__

exports = sa.Table(
    "exports",
    metadata,
    sa.Column("endpoint", sa.String(500), ref("exporters.endpoint"), primary_key=True),
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True, index=True),
    sa.Column("transaction", sa.BigInteger, nullable=False, comment="up to where of its log everything was sent"),
    sa.Column("event", sa.BigInteger, nullable=False),
)
