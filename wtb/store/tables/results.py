"""The tables of results: cells, scores, series, and what is made of them."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.status import CELL
from wtb.store.tables.access import project_column
from wtb.store.tables.column_types import Count, Id, Json, Seconds, metadata, now, one_of, ref

cells = sa.Table(
    "cells",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.String(16), nullable=False),  # pending while it runs: see `wtb/store/cell_status.py`
    sa.Column("execution_id", Id, comment="whose outcome it has, or the one that holds it"),
    sa.Column("elapsed_s", sa.Double, comment="as if alone: accepted attempts, the longest of a parallel step"),
    sa.Column("usd", sa.Double),
    sa.Column("tokens_in", Count),
    sa.Column("tokens_out", Count),
    sa.Column("node_runs", Count),
    sa.Column("failure", Json),
    sa.Column("edited", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("finished_at", Seconds),
    one_of("status", CELL),
)
# Each row is updated once: on its own page that spares the indexes.
_half_full = sa.DDL("ALTER TABLE cells SET (fillfactor = 40)")  # type: ignore[no-untyped-call]
sa.event.listen(cells, "after_create", _half_full.execute_if(dialect="postgresql"))

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
    sa.Column("observed", sa.Text, comment="what the cell tells of a figure over all cells of a row"),
    sa.Column("version", sa.String(200), comment="of what gave it, such as the model that a judge was answered by"),
    sa.Column("reason", sa.Text, comment="why it has this value, in words"),
)

metrics = sa.Table(
    "metrics",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, nullable=False, comment="their order in the matrix"),
    sa.Column("better", sa.String(8), nullable=False),
    sa.Column(
        "declared", sa.Boolean, nullable=False, server_default=sa.true(), comment="whether the direction was declared"
    ),
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
    sa.Column("figure", sa.String(32), comment="over all cells of a row, which scores are parts of"),
    sa.CheckConstraint("better IN ('higher', 'lower')", name="better"),
)

labels = sa.Table(
    "labels",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("metric", sa.String(200), primary_key=True, comment="whose scores it is held against"),
    sa.Column("case_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("repeat", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("combination", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("rater", sa.String(255), primary_key=True),
    sa.Column("value", sa.Double, nullable=False),
    sa.Column("asked", sa.String(16), nullable=False, comment="why it was asked for"),
    sa.Column("probability", sa.Double, comment="that its case was drawn with; null where it was not drawn here"),
    sa.Column("at", Seconds, nullable=False, server_default=now()),
    sa.CheckConstraint("asked IN ('random', 'disagreement')", name="asked"),
    comment="what people say of cells",
)

comments = sa.Table(
    "comments",
    metadata,
    sa.Column("sweep_id", Id, ref("sweeps.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False, comment="of the sweep, from 1"),
    sa.Column("case_number", sa.Integer, nullable=False),
    sa.Column("repeat", sa.Integer, nullable=False),
    sa.Column("combination", sa.Integer, nullable=False),
    sa.Column("by", sa.String(255), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("at", Seconds, nullable=False, server_default=now()),
    sa.Index("ix_comments_cell", "sweep_id", "case_number"),
    comment="what people write about cells",
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
    sa.Column("cells", Json, comment="how many there are of each status, once the matrix is kept"),
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
    sa.Column("reference_id", Id, index=True, comment="the sweep that was set by hand; null where it is still it"),
    sa.Column("nights", Json, comment="sweeps that were compared with it since, the oldest first"),
)

looks = sa.Table(
    "looks",
    metadata,
    sa.Column("sweep_id", Id, primary_key=True, comment="the sweep, which may be deleted since"),
    project_column(),
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
        "sweep_id", Id, sa.ForeignKey("sweeps.id"), primary_key=True, index=True, comment="not removed while it is"
    ),
    sa.Column("number", sa.Integer, nullable=False, comment="the order of its runs among the pool's repeats"),
    comment="the sweeps whose cells a pool has",
)
