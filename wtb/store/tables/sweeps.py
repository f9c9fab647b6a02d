"""The tables of sessions, runners, sweeps, workflows, limits of nodes, schedules, and the log of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

import sqlalchemy as sa

from wtb.core.documents.shared_types import SweepStatus
from wtb.core.documents.workflows import PublicationKind
from wtb.core.ids import plain_id
from wtb.core.serialization.plain_json import iso
from wtb.core.status import HIDDEN_SWEEPS, SWEEP
from wtb.core.tree.stored_code import RecordedCode
from wtb.core.tree.stored_spec import StoredSpec
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
    project_column,
    ref,
    transaction_number,
    where,
)

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.shared_types import SweepHeading

ALERTING = "execution_id IS NULL OR kind IN ('approval.asked', 'execution.stalled')"  # events to alert people of


class SessionRow(Row):
    """A session; `deleted_usd` is the amount that deleted sweeps have spent."""

    __tablename__ = "sessions"
    id: str = column(Id, primary_key=True)
    name: str = column(sa.String(200), unique=True)
    quota: Mapping[str, float] | None = column(Json)
    owner: str | None = column(sa.String(200), comment="who is responsible for it")
    metadata: Mapping[str, str] | None = column(Json, comment="texts by name")
    project: str = project_column()
    archived_at: float | None = column(Seconds)
    deleted_usd: float = column(sa.Double, server_default="0", comment="spent by sweeps deleted since")
    created_at: float = column(Seconds, server_default=now())
    __table_args__ = (sa.Index("ix_sessions_project", "project"),)


sessions = SessionRow.__table__


class RunnerRow(Row):
    """A process that runs sweeps, with its heartbeat.

    Attributes:
        session_id: The session whose slots it took when it started; workers take those of the sweeps that they run.
        worker: The name of the worker, if it is one.
        queues: The queues from which the worker takes executions.
        clock_s: How far its clock is ahead of the database's.
        refused: Ids of sweeps whose code it rejects.
    """

    __tablename__ = "runners"
    id: str = column(Id, primary_key=True)
    host: str = column(sa.String(255))
    boot: str = column(sa.String(64))
    pid: int = column(sa.Integer)
    process_started_at: float = column(Seconds)
    created_at: float = column(Seconds, server_default=now())
    session_id: str | None = column(Id, comment="whose slots it takes; null where it serves any session")
    slots: int = column(sa.Integer, server_default="0", comment="node runs at a time")
    seen_at: float | None = column(Seconds, comment="its last heartbeat")
    ended_at: float | None = column(Seconds, comment="null while it runs, or where it died")
    worker: str | None = column(
        sa.String(255), comment="name of the worker that it is a process of; null for `wtb run`"
    )
    pool: str | None = column(sa.String(16), comment="of the worker: prefork or threads")
    queues: list[str | None] | None = column(Json, comment="names of the queues that it takes executions from")
    version: str | None = column(sa.String(40))
    clock_s: float | None = column(
        sa.Double, comment="how far its clock is ahead of the database's, at its last heartbeat"
    )
    refused: list[str] | None = column(Json, comment="ids of sweeps whose code it rejects; null if none")
    __table_args__ = (sa.Index("ix_runners_session_id", "session_id"),)


runners = RunnerRow.__table__

workflows = sa.Table(
    "workflows",
    metadata,
    sa.Column("id", Digest, primary_key=True, comment="SHA-256 of the graph snapshot"),
    sa.Column("name", sa.String(200), nullable=False),
    sa.Column("version", sa.String(200), nullable=False),
    sa.Column("graph", OrderedJson, nullable=False),
)


class SweepRow(Row):
    """A sweep as it is in the database. Times are seconds since the epoch.

    Attributes:
        session: The name of its session.
        token: The token with which it was submitted; None for the operator.
        spec: The sweep as it was submitted, and its origin.
        fingerprints: The fingerprints of code by node and variant.
        root_s: Seconds that a root with its tree took a slot lately; None until that was measured.
    """

    __tablename__ = "sweeps"
    id: str = column(Id, primary_key=True)
    session_id: str = column(Id, ref("sessions.id"), index=True)
    workflow_id: str = column(Digest, sa.ForeignKey("workflows.id"), index=True)
    name: str = column(sa.String(200), index=True)
    project: str = project_column()
    token: str | None = column(sa.String(64), comment="by which it was submitted, and whose budget binds it")
    status: SweepStatus = column(sa.String(16))
    reason: str | None = column(sa.Text)
    runner_id: str | None = column(Id, comment="the process that runs it by itself, while it does")
    queued: bool = column(sa.Boolean, server_default=sa.false(), comment="workers run it")
    running_since: float | None = column(Seconds, comment="the time of its limit `wall` counts from here")
    spec: StoredSpec = column(OrderedJson, comment="the sweep as it was submitted, and where from")
    fingerprints: dict[str, dict[str, str]] = column(OrderedJson, comment="node -> variant -> code fingerprint")
    kind: Literal["sweep", "single"] = column(
        sa.String(8), server_default="sweep", comment="sweep, or a single execution"
    )
    breakpoints: Sequence[str] | None = column(Json, comment="where executions pause, in words")
    notify: Sequence[Target] | None = column(Json, comment="notification targets and what each is sent; null if none")
    cells: int = column(Count)
    priority: int = column(sa.Integer, server_default="0")
    pinned: bool = column(sa.Boolean, server_default=sa.false(), comment="retention keeps it")
    collected_usd: float = column(sa.Double, server_default="0", comment="of attempts collected since")
    collected_node_runs: int = column(Count, server_default="0")
    created_at: float = column(Seconds, server_default=now())
    started_at: float | None = column(Seconds)
    finished_at: float | None = column(Seconds)
    root_s: float | None = column(
        sa.Double, comment="seconds that a root with its tree took a slot lately; null until measured"
    )
    session: str
    __table_args__ = (
        one_of("status", SWEEP),
        sa.Index("ix_sweeps_project", "project", "created_at", "id"),
        sa.Index("ix_sweeps_open", "status", "priority", **where("queued AND status IN ('pending', 'running')")),
        sa.Index("ix_sweeps_hidden", "status", **where("status IN ('submitting', 'deleting')")),
        sa.Index("ix_sweeps_notify", "id", **where("notify IS NOT NULL")),
    )

    @property
    def recorded_code(self) -> RecordedCode:
        """The code of its variants when it was submitted."""
        return RecordedCode(self.fingerprints, self.spec.get("code"))

    @property
    def heading(self) -> SweepHeading:
        """The sweep as documents of results name it."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "started_at": iso(self.started_at),
            "finished_at": iso(self.finished_at),
        }


sweeps = SweepRow.__table__

# A condition of every query that finds sweeps. Queries for rows of a sweep that was found do without.
is_visible: sa.ColumnElement[bool] = sweeps.c.status.not_in(HIDDEN_SWEEPS)


class CaseRow(Row):
    """A case of a sweep.

    Attributes:
        input: The digests of values by key of the state.
        expected: The expected value, as typed JSON.
        workspace: The digest of the snapshot with which its runs start.
        cluster: The cluster that it shares with other cases, by which intervals are computed.
        erased_at: When it was erased; only its id and number are left then.
        erased_by: The person who erased it.
    """

    __tablename__ = "cases"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    id: str = column(sa.Text)
    input: dict[str, str] = column(Json, comment="key -> digest of its value")
    expected: str | None = column(sa.Text, comment="typed JSON")
    tags: list[str] = column(Json)
    workspace: str | None = column(Digest)
    cluster: str | None = column(sa.Text, comment="what it came from with others, which are not independent of it")
    erased_at: float | None = column(Seconds, comment="nothing but its id and number is left of it then")
    erased_by: str | None = column(sa.String(255))
    __table_args__ = (sa.UniqueConstraint("sweep_id", "id"),)


cases = CaseRow.__table__


class CaseColumns(TypedDict):
    """A case of a sweep that is submitted; `input` has the digests of values by key of the state."""

    sweep_id: str
    number: int
    id: str
    input: Mapping[str, str]
    expected: str | None
    tags: list[str]
    workspace: str | None
    cluster: str | None


# A condition of every query that counts or lists cases, except those about erased ones.
is_kept: sa.ColumnElement[bool] = cases.c.erased_at.is_(None)


def is_case(id: str) -> sa.ColumnElement[bool]:
    """Return the condition that a case has an id, as typed or as stored."""
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
    # No foreign keys: each would be checked for every event, and deletion removes the events of a sweep itself.
    sa.Column("execution_id", Id),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("severity", sa.String(8), nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("data", Json, nullable=False),
    sa.CheckConstraint("severity IN ('debug', 'info', 'warning', 'error')", name="severity"),
    sa.Index("ix_events_sweep_id_transaction_id", "sweep_id", "transaction", "id"),
    sa.Index("ix_events_alerting", "sweep_id", "id", **where(ALERTING)),
)


class NewCombination(TypedDict):
    """A combination of a sweep that is submitted."""

    sweep_id: str
    number: int
    choices: Mapping[str, str]


class Subject(TypedDict):
    """The subject of an event, as columns of `events`."""

    session_id: str
    sweep_id: str
    execution_id: str | None


class NewEvent(Subject):
    """An event to be inserted. `data` is JSON, whose keys depend on the kind."""

    kind: str
    severity: str
    at: float
    data: dict[str, JsonValue]


class EventRow(NewEvent):
    """An event of the log: one that was inserted, or one that is derived from another row."""

    id: int
    transaction: int


class PublicationRow(Row):
    """The description of a workflow or an evaluator, as workers publish it.

    Attributes:
        description: As JSON; None if no worker could import it.
        error: The error of a worker that cannot import it.
    """

    __tablename__ = "publications"
    kind: PublicationKind = column(sa.String(12), primary_key=True)
    name: str = column(sa.String(500), primary_key=True, comment="registered; of an evaluator its import path")
    path: str = column(sa.String(500), comment="import path")
    digest: str | None = column(Digest, comment="SHA-256 of the description")
    description: str | None = column(sa.Text, comment="JSON, whose order counts; null where no worker could import it")
    published_at: float | None = column(Seconds)
    published_by: str | None = column(sa.String(255), comment="the worker that did")
    error: str | None = column(sa.Text, comment="why a worker cannot import it")
    failed_at: float | None = column(Seconds)
    failed_by: str | None = column(sa.String(255))
    __table_args__ = (
        sa.CheckConstraint("kind IN ('workflow', 'evaluator')", name="kind"),
        # Both may be set: another worker cannot import what the first one published.
        sa.CheckConstraint("description IS NOT NULL OR error IS NOT NULL", name="content"),
    )


publications = PublicationRow.__table__


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
    sa.Column("notify", Json, nullable=False, comment="notification targets"),
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
    # The key keeps two schedulers from making the same fire.
    sa.Column("fire_at", Seconds, primary_key=True, comment="when it was due"),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("manual", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("token", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("lease_until", Seconds, comment="when its lease ends; set after its end if a notification is due"),
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
