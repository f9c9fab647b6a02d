"""Migration 1041: looks, which are what was tried over which cases, as existing sweeps show it; and pools."""

from __future__ import annotations

from typing import Any

import orjson
import sqlalchemy as sa
from alembic import op

from wtb.core.tree.looks import CaseSketch, baseline_key, case_digest, combination_keys
from wtb.store.tables.column_types import Json, now

revision = "1041"
down_revision = "1040"
branch_labels = None
depends_on = None

_SWEEPS = sa.table(
    "sweeps",
    *map(sa.column, ("id", "project", "session_id", "workflow_id", "created_at", "kind", "status")),
    sa.column("spec", Json),
    sa.column("fingerprints", Json),
)
_WORKFLOWS = sa.table("workflows", sa.column("id"), sa.column("name"))
_COMBINATIONS = sa.table("combinations", sa.column("sweep_id"), sa.column("number"), sa.column("choices", Json))
_CASES = sa.table(
    "cases",
    *map(sa.column, ("sweep_id", "expected", "workspace", "erased_at")),
    sa.column("input", Json),
)
_MATRICES = sa.table("matrices", sa.column("sweep_id"), sa.column("document", Json))


def upgrade() -> None:
    op.create_table(
        "looks",
        sa.Column("sweep_id", sa.String(32), primary_key=True, comment="the sweep, which may be deleted since"),
        sa.Column("project", sa.String(200), nullable=False, server_default="default"),
        sa.Column("session_id", sa.String(32), nullable=False),
        sa.Column("workflow", sa.String(200), nullable=False),
        sa.Column("at", sa.Double, nullable=False, server_default=now()),
        sa.Column(
            "final", sa.Boolean, nullable=False, server_default=sa.false(), comment="over cases kept for the end"
        ),
        sa.Column("cases", sa.BigInteger, nullable=False, comment="how many different ones"),
        sa.Column("sketch", sa.LargeBinary, nullable=False, comment="the smallest digests of its cases"),
        sa.Column("baseline", sa.String(16), nullable=False, comment="key of the code that others are compared with"),
        sa.Column("combinations", Json, nullable=False, comment="keys of what others change"),
        sa.Column("metrics", Json, comment="that it scored, once it is deleted; until then its scores show them"),
        sa.Column(
            "claims", Json, nullable=False, server_default="[]", comment="(metric, direction, key) of differences"
        ),
        comment="what was tried over which cases; kept when sweeps are deleted",
    )
    op.create_index("ix_looks_workflow", "looks", ["workflow", "project", "at"])
    op.create_table(
        "pooled",
        sa.Column("pool_id", sa.String(32), sa.ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True),
        sa.Column(
            "sweep_id", sa.String(32), sa.ForeignKey("sweeps.id"), primary_key=True, comment="not removed while it is"
        ),
        sa.Column("number", sa.Integer, nullable=False, comment="the order of its runs among the pool's repeats"),
        comment="the sweeps whose cells a pool has",
    )
    op.create_index("ix_pooled_sweep_id", "pooled", ["sweep_id"])
    _fill(op.get_bind())


_LOOKS = sa.table(
    "looks",
    *map(sa.column, ("sweep_id", "project", "session_id", "workflow", "at", "final", "cases", "baseline")),
    sa.column("sketch", sa.LargeBinary),
    sa.column("combinations", Json),
    sa.column("claims", Json),
)


def _fill(connection: sa.Connection) -> None:
    """Add the looks that the sweeps are which are there."""
    query = (
        sa.select(_SWEEPS, _WORKFLOWS.c.name)
        .join_from(_SWEEPS, _WORKFLOWS, _WORKFLOWS.c.id == _SWEEPS.c.workflow_id)
        .where(_SWEEPS.c.kind == "sweep", _SWEEPS.c.status.not_in(("submitting", "deleting")))
    )
    for row in connection.execute(query).all():
        own = sa.select(_COMBINATIONS.c.choices).where(_COMBINATIONS.c.sweep_id == row.id)
        choices = list(connection.scalars(own.order_by(_COMBINATIONS.c.number)))
        keys = combination_keys(choices, row.spec.get("baseline_row"), row.fingerprints)
        count, digests = _sketch(connection, row.id).finish()
        values = {
            "sweep_id": row.id,
            "project": row.project,
            "session_id": row.session_id,
            "workflow": row.name,
            "at": row.created_at,
            "final": bool(row.spec.get("final")),
            "cases": count,
            "sketch": digests,
            "baseline": baseline_key(row.spec.get("baseline_row"), row.fingerprints),
            "combinations": list(dict.fromkeys(key for key in keys if key)),
            "claims": _claims(connection, row.id, choices, keys),
        }
        connection.execute(_LOOKS.insert().values(values))


def _sketch(connection: sa.Connection, sweep_id: str) -> CaseSketch:
    sketch = CaseSketch()
    contents = sa.select(_CASES.c.input, _CASES.c.expected, _CASES.c.workspace)
    query = contents.where(_CASES.c.sweep_id == sweep_id, _CASES.c.erased_at.is_(None))
    for part in connection.execute(query.execution_options(yield_per=1_000)).partitions():
        for case in part:
            sketch.add(case_digest(*case))
    return sketch


def _claims(connection: sa.Connection, sweep_id: str, choices: list[Any], keys: list[str]) -> list[list[str]]:
    """The differences that a kept matrix shows; of others nothing is known."""
    kept = connection.scalar(sa.select(_MATRICES.c.document).where(_MATRICES.c.sweep_id == sweep_id))
    if not kept:
        return []
    document = orjson.loads(kept) if isinstance(kept, str) else kept
    claims = []
    for key, row in zip(keys, document.get("rows", ()), strict=False):
        for metric, figures in row.get("metrics", {}).items():
            p, delta = figures.get("p_adjusted"), figures.get("delta")
            if key and delta and p is not None and p < 0.05 and not row.get("exploratory"):
                claims.append([metric, "+" if delta > 0 else "-", key])
    for metric, best in document.get("best", {}).items():
        if best.get("clear") and not best.get("unranked") and best.get("combination") in choices:
            claims.append([metric, "best", keys[choices.index(best["combination"])]])
    return claims
