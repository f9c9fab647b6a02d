"""Superseded checkpoints: those on no line of a head that counts, and removing them.

Heads that count are those of executions that a cell names, that are open or that people forked and nothing superseded,
pinned checkpoints, young ones, and what young rollbacks left and could still be redone, so that what is left is whole
lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import sqlalchemy as sa

from wtb.core.documents.events.sweeps import SweepCollectedData
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.values import Json
from wtb.store.bulk import parts, update_rows
from wtb.store.database import Database
from wtb.store.events import add_event, of_sweep
from wtb.store.housekeeping.references import GONE_CHECKPOINTS
from wtb.store.housekeeping.retention import locked_sweep, settled
from wtb.store.housekeeping.sizes import total
from wtb.store.log import keep_events
from wtb.store.tables.schema import attempts, cells, checkpoints, executions, node_runs, rollbacks, sweeps

SUPERSEDED = "its later checkpoints were superseded, and `wtb gc` removed them"
PART = 20_000  # finding some costs as much as finding all


@dataclass(frozen=True)
class Removed:
    """Superseded checkpoints that were removed, with the node runs that went with them."""

    checkpoints: int = 0
    node_runs: int = 0


def superseded(sweep_id: str, before: float) -> sa.Select[Any]:
    """Checkpoints (id, parent_id) made before then that are on no line of a head that counts, children first."""
    named = sa.exists().where(cells.c.execution_id == executions.c.id)
    by_people = sa.and_(executions.c.origin == "manual", executions.c.status != "cancelled")
    heads = sa.select(executions.c.head_id).where(
        executions.c.sweep_id == sweep_id, sa.or_(executions.c.status.in_(OPEN_EXECUTIONS), named, by_people)
    )
    left = sa.select(rollbacks.c.from_id).where(
        rollbacks.c.sweep_id == sweep_id, rollbacks.c.redone_at.is_(None), rollbacks.c.at >= before
    )
    kept = sa.or_(checkpoints.c.pinned, checkpoints.c.created_at >= before)
    kept_ids = sa.select(checkpoints.c.id).where(checkpoints.c.sweep_id == sweep_id, kept)
    # Joined below: where there are many, PostgreSQL is slow to look in a list.
    ends = sa.union(heads, kept_ids, left).subquery()
    reached = sa.select(checkpoints.c.id, checkpoints.c.parent_id).join(ends, ends.c.head_id == checkpoints.c.id)
    line = reached.cte("line", recursive=True)
    line = line.union(
        sa.select(checkpoints.c.id, checkpoints.c.parent_id).join(line, checkpoints.c.id == line.c.parent_id)
    )
    on_no_line = ~sa.exists().where(line.c.id == checkpoints.c.id)
    step = checkpoints.c.position["step"].as_integer().label("step")
    found = (
        sa.select(checkpoints.c.id, checkpoints.c.parent_id, step)
        .where(checkpoints.c.sweep_id == sweep_id, checkpoints.c.created_at < before, on_no_line)
        .cte("found")
        # Else PostgreSQL looks for the first few by comparing each with each.
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    return sa.select(found.c.id, found.c.parent_id).order_by(found.c.step.desc(), found.c.id.desc())


def has_superseded(database: Database, sweep_id: str, before: float) -> bool:
    return bool(database.tuples(superseded(sweep_id, before).limit(1), long=True))


def remove_superseded(database: Database, sweep_id: str, before: float) -> Removed:
    """Remove up to 20,000 superseded checkpoints of a sweep with the node runs that started from them.

    Executions that stood on one of them stay as history: they move back to the nearest checkpoint that is left.
    What was spent stays known of the sweep, and an event reports it.
    """
    with database.write(long=True) as connection:
        sweep = locked_sweep(connection, sweep_id, *settled())
        if sweep is None:
            return Removed()
        rows = connection.execute(superseded(sweep_id, before).limit(PART))
        parents: dict[str, str | None] = {row.id: row.parent_id for row in rows}
        if not parents:
            return Removed()
        ids = list(parents)
        spent = spent_from(connection, ids)
        _move_back(connection, parents)
        for part in parts(ids):
            runs = connection.scalars(sa.select(node_runs.c.id).where(node_runs.c.checkpoint_id.in_(part)))
            keep_events(connection, node_runs, runs.all())
            keep_events(connection, checkpoints, part)
        connection.execute(checkpoints.delete().where(checkpoints.c.id.in_(ids)))
        connection.execute(
            sweeps.update()
            .where(sweeps.c.id == sweep_id)
            .values(
                collected_usd=sweeps.c.collected_usd + spent["usd"],
                collected_node_runs=sweeps.c.collected_node_runs + spent["node_runs"],
            )
        )
        add_event(connection, of_sweep(sweep), "sweep.collected", cast("Mapping[str, Json]", spent))
    return Removed(len(ids), spent["node_runs"])


def imagine_superseded_gone(connection: sa.Connection, sweep_id: str, before: float) -> Removed:
    """Note the superseded checkpoints of a sweep as gone, and count them with their node runs."""
    found = superseded(sweep_id, before).order_by(None)
    gone = GONE_CHECKPOINTS.insert().from_select(["id"], found.with_only_columns(found.selected_columns.id))
    connection.execute(gone)
    these = sa.select(sa.func.count()).select_from(GONE_CHECKPOINTS)
    noted = these.join(checkpoints, checkpoints.c.id == GONE_CHECKPOINTS.c.id).where(checkpoints.c.sweep_id == sweep_id)
    runs = these.join(node_runs, node_runs.c.checkpoint_id == GONE_CHECKPOINTS.c.id).where(
        node_runs.c.sweep_id == sweep_id
    )
    return Removed(connection.scalar(noted) or 0, connection.scalar(runs) or 0)


def spent_from(connection: sa.Connection, ids: Sequence[str]) -> SweepCollectedData:
    """How many checkpoints these are, and what the node runs from them have spent, failed attempts included."""
    runs = sa.select(sa.func.count()).where(node_runs.c.checkpoint_id.in_(ids))
    tried = (
        sa.select(
            sa.func.count().label("attempts"),
            sa.func.coalesce(sa.func.sum(attempts.c.usd), 0.0).label("usd"),
            total(attempts.c.tokens_in).label("tokens_in"),
            total(attempts.c.tokens_out).label("tokens_out"),
        )
        .join(node_runs, node_runs.c.id == attempts.c.node_run_id)
        .where(node_runs.c.checkpoint_id.in_(ids))
    )
    (made, usd, tokens_in, tokens_out) = connection.execute(tried).one()
    return {
        "checkpoints": len(ids),
        "node_runs": connection.scalar(runs) or 0,
        "attempts": made,
        "usd": usd,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
    }


def _move_back(connection: sa.Connection, parents: dict[str, str | None]) -> None:
    """Move heads from checkpoints that are removed to the nearest ancestor that stays."""
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.reason)
    changed = []
    for id, head, reason in connection.execute(query.where(executions.c.head_id.in_(list(parents)))):
        left: str | None = head
        while left in parents:
            left = parents[left]
        changed.append({"id": id, "head_id": left, "reason": reason or SUPERSEDED})
    update_rows(connection, executions, changed, ("id",))
