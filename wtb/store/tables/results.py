"""The tables of results: cells, scores, labels, matrices, baselines, looks and pools."""

from __future__ import annotations

from typing import Required, TypedDict

import sqlalchemy as sa

from wtb.core.documents.shared_types import CellStatus
from wtb.core.failures import StoredFailure
from wtb.core.scoring.measure import Better, StoredMeasure
from wtb.core.status import CELL
from wtb.store.tables.column_types import (
    Count,
    Id,
    Json,
    Row,
    Seconds,
    column,
    metadata,
    now,
    one_of,
    project_column,
    ref,
)


class CellRow(Row):
    """A cell; the figures of its execution and its failure are known at its end."""

    __tablename__ = "cells"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    case_number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    repeat: int = column(sa.Integer, primary_key=True, autoincrement=False)
    combination: int = column(sa.Integer, primary_key=True, autoincrement=False)
    status: CellStatus = column(sa.String(16))  # pending while it runs: see `wtb/store/cell_status.py`
    execution_id: str | None = column(Id, comment="whose outcome it has, or the one that holds it")
    elapsed_s: float | None = column(
        sa.Double, comment="as if alone: accepted attempts, the longest of a parallel step"
    )
    usd: float | None = column(sa.Double)
    tokens_in: int | None = column(Count)
    tokens_out: int | None = column(Count)
    node_runs: int | None = column(Count)
    failure: StoredFailure | None = column(Json)
    edited: bool = column(sa.Boolean, server_default=sa.false())
    finished_at: float | None = column(Seconds)
    __table_args__ = (one_of("status", CELL),)


cells = CellRow.__table__


class CellChange(TypedDict, total=False):
    """The present columns of a cell; open cells have no figures of their execution and no failure."""

    status: Required[str]
    elapsed_s: float | None
    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    node_runs: int | None
    failure: StoredFailure | None
    edited: bool
    finished_at: float | None


class NewCell(CellChange):
    """A cell of a sweep."""

    sweep_id: str
    case_number: int
    repeat: int
    combination: int
    execution_id: str


class HeldCell(TypedDict):
    """The change of a cell whose execution pauses or waits."""

    sweep_id: str
    case_number: int
    repeat: int
    combination: int
    status: str
    execution_id: str


class Outcome(HeldCell):
    """The change of a cell that has ended."""

    elapsed_s: float
    usd: float
    tokens_in: int
    tokens_out: int
    node_runs: int
    failure: StoredFailure | None
    edited: bool


# Each row is updated once; room on its own page spares new entries in the indexes.
_half_full = sa.DDL("ALTER TABLE cells SET (fillfactor = 40)")  # type: ignore[no-untyped-call]
sa.event.listen(cells, "after_create", _half_full.execute_if(dialect="postgresql"))


class ScoreRow(Row):
    """A score of a cell, or the reason for which it has none."""

    __tablename__ = "scores"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    metric: str = column(sa.String(200), primary_key=True)
    case_number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    repeat: int = column(sa.Integer, primary_key=True, autoincrement=False)
    combination: int = column(sa.Integer, primary_key=True, autoincrement=False)
    value: float | None = column(sa.Double)
    error: str | None = column(sa.Text)
    observed: str | None = column(sa.Text, comment="the cell value of a figure over all cells of a row")
    version: str | None = column(
        sa.String(200), comment="of what gave it, such as the model that a judge was answered by"
    )
    reason: str | None = column(sa.Text, comment="why it has this value, in words")


scores = ScoreRow.__table__


class NewScore(TypedDict):
    """A score of a cell, or the reason for which it has none."""

    sweep_id: str
    metric: str
    case_number: int
    repeat: int
    combination: int
    value: float | None
    error: str | None
    observed: str | None
    version: str | None
    reason: str | None


class MetricRow(Row):
    """A metric of a sweep, as its evaluator declared it."""

    __tablename__ = "metrics"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    name: str = column(sa.String(200), primary_key=True)
    number: int = column(sa.Integer, comment="their order in the matrix")
    better: Better = column(sa.String(8))
    declared: bool = column(sa.Boolean, server_default=sa.true(), comment="whether the direction was declared")
    by_median: bool = column(
        sa.Boolean,
        server_default=sa.false(),
        comment="combinations are compared by the median of their differences, else by the mean",
    )
    low: float | None = column(sa.Double, comment="the ends of the scale that was declared")
    high: float | None = column(sa.Double)
    on_failure: str | None = column(
        sa.String(32), comment="the score of a failed cell, or left_out; else that of the sweep"
    )
    figure: str | None = column(sa.String(32), comment="over all cells of a row, which scores are parts of")
    __table_args__ = (sa.CheckConstraint("better IN ('higher', 'lower')", name="better"),)


metrics = MetricRow.__table__


class NewMetric(StoredMeasure):
    """A metric of a sweep."""

    sweep_id: str
    name: str
    number: int


class LabelRow(Row):
    """A label of a cell by a person.

    Attributes:
        asked: Why it was requested: `random`, or `disagreement` of other raters.
        probability: The probability with which its case was drawn; None if it was not drawn here.
    """

    __tablename__ = "labels"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    metric: str = column(sa.String(200), primary_key=True, comment="whose scores it is held against")
    case_number: int = column(sa.Integer, primary_key=True, autoincrement=False)
    repeat: int = column(sa.Integer, primary_key=True, autoincrement=False)
    combination: int = column(sa.Integer, primary_key=True, autoincrement=False)
    rater: str = column(sa.String(255), primary_key=True)
    value: float = column(sa.Double)
    asked: str = column(sa.String(16), comment="why it was asked for")
    probability: float | None = column(
        sa.Double, comment="that its case was drawn with; null where it was not drawn here"
    )
    at: float = column(Seconds, server_default=now())
    __table_args__ = (
        sa.CheckConstraint("asked IN ('random', 'disagreement')", name="asked"),
        {"comment": "comments of people on cells"},
    )


labels = LabelRow.__table__


class ListedComment(Row):
    """A comment on a cell, with the id of its case."""

    __tablename__ = "comments"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    number: int = column(sa.Integer, primary_key=True, autoincrement=False, comment="of the sweep, from 1")
    case_number: int = column(sa.Integer)
    repeat: int = column(sa.Integer)
    combination: int = column(sa.Integer)
    by: str = column(sa.String(255))
    text: str = column(sa.Text)
    at: float = column(Seconds, server_default=now())
    case: str
    __table_args__ = (
        sa.Index("ix_comments_cell", "sweep_id", "case_number"),
        {"comment": "what people write about cells"},
    )


comments = ListedComment.__table__


class TallyRow(Row):
    """The scores of a combination by a metric.

    Attributes:
        n: How many cells have one.
        total: The sum of them.
    """

    __tablename__ = "tallies"
    sweep_id: str = column(Id, ref("sweeps.id"), primary_key=True)
    metric: str = column(sa.String(200), primary_key=True)
    combination: int = column(sa.Integer, primary_key=True, autoincrement=False)
    n: int = column(Count, comment="cells with a score")
    total: float = column(sa.Double, comment="sum of their scores")


tallies = TallyRow.__table__

matrices = sa.Table(
    "matrices",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("transaction", sa.BigInteger, nullable=False, server_default="-1", comment="tallied up to this event"),
    sa.Column("event_id", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("tallied_at", Seconds),
    sa.Column("document", Json, comment="the matrix, once the sweep is at its end"),
    sa.Column("frozen_at", Seconds),
    sa.Column("cells", Json, comment="how many there are of each status, once the matrix is kept"),
)

baselines = sa.Table(
    "baselines",
    metadata,
    sa.Column("session_id", Id, ref("sessions.id"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column(
        # Without ON DELETE CASCADE, unlike other references: the database rejects the deletion of a baseline.
        "sweep_id",
        Id,
        sa.ForeignKey("sweeps.id"),
        nullable=False,
        index=True,
        comment="not removed while it is",
    ),
    sa.Column("set_at", Seconds, nullable=False, server_default=now()),
    sa.Column("noise_floor", Json, comment="what repeats of the sweep differ by; null where nobody made any"),
    sa.Column("reference_id", Id, index=True, comment="the sweep that was set by hand; null where it is still it"),
    sa.Column("nights", Json, comment="sweeps that were compared with it since, the oldest first"),
)

looks = sa.Table(
    "looks",
    metadata,
    # No foreign key, because looks outlive their sweeps.
    sa.Column("sweep_id", Id, primary_key=True, comment="the sweep, which may be deleted since"),
    project_column("project"),
    sa.Column("session_id", Id, nullable=False),
    sa.Column("workflow", sa.String(200), nullable=False),
    sa.Column("at", Seconds, nullable=False, server_default=now()),
    sa.Column("final", sa.Boolean, nullable=False, server_default=sa.false(), comment="over cases kept for the end"),
    sa.Column("cases", Count, nullable=False, comment="how many different ones"),
    sa.Column("sketch", sa.LargeBinary, nullable=False, comment="the smallest digests of its cases"),
    sa.Column("baseline", sa.String(16), nullable=False, comment="key of the code that others are compared with"),
    sa.Column("combinations", Json, nullable=False, comment="keys of what others change"),
    sa.Column("metrics", Json, comment="that it scored, once it is deleted; until then its scores show them"),
    sa.Column("claims", Json, nullable=False, server_default="[]", comment="(metric, direction, key) of differences"),
    sa.Column("extended_id", Id, comment="the sweep that this look was before its extension"),
    sa.Index("ix_looks_workflow", "workflow", "project", "at"),
    comment="what was tried over which cases; kept when sweeps are deleted",
)

pooled = sa.Table(
    "pooled",
    metadata,
    sa.Column("pool_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column(
        # Without ON DELETE CASCADE, so that the database rejects the deletion of a source.
        "sweep_id",
        Id,
        sa.ForeignKey("sweeps.id"),
        primary_key=True,
        index=True,
        comment="not removed while it is",
    ),
    sa.Column("number", sa.Integer, nullable=False, comment="the order of its runs among the pool's repeats"),
    comment="the sweeps whose cells a pool has",
)
