"""The tables of checkpoints, of decisions about what runs next, and of the values and files that checkpoints share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import sqlalchemy as sa

from wtb.core.tree.checkpoints import StoredInside, StoredPosition, Trigger
from wtb.core.values import Json as JsonValue
from wtb.store.tables.column_types import Count, Digest, Id, Json, OrderedJson, Seconds, metadata, ref, where
from wtb.store.tables.row import Row, column


class CheckpointRow(Row):
    """A checkpoint.

    Attributes:
        state: Key -> digest of its value.
        writers: (node, variant, node run) of those whose writes it has.
        totals: Seconds, US dollars, tokens in and out and node runs of the line up to it.
        inside: Of one that was taken inside a node, what it keeps of the visit.
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
    """A checkpoint. created_event: of one that says its event, the event's number in the batch."""

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
    """Why an execution went from a node to another one."""

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
    """Why an execution went from a node to another one."""

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
