"""Superseded checkpoints, which are on no line of a head that counts, and their removal.

These heads count: heads of executions that a cell names, that are open, or that people forked and nothing superseded;
pinned checkpoints; young checkpoints; and the former heads of young rollbacks that can still be undone. So whole lines
are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import sqlalchemy as sa

from wtb.core.documents.sweep_events import SweepCollectedData
from wtb.core.errors import ConflictError
from wtb.core.frozen import frozen
from wtb.core.status import OPEN_EXECUTIONS
from wtb.core.tree.checkpoint_store import check_end
from wtb.core.tree.checkpoints import CheckpointId
from wtb.core.values import Json
from wtb.store.access.usage import total
from wtb.store.bulk import fetch_among, parts, update_rows
from wtb.store.cell_status import attempt_column, is_attempt, named_executions, node_runs_with_attempts
from wtb.store.database import Database
from wtb.store.housekeeping.retention import locked_sweep, settled_conditions
from wtb.store.housekeeping.stored_values import GONE_CHECKPOINTS
from wtb.store.log import add_event, keep_events, of_sweep
from wtb.store.read import lineage
from wtb.store.tables.schema import checkpoints, executions, node_runs, rollbacks, sweeps
from wtb.store.tables.sweeps import SweepRow

SUPERSEDED = "its later checkpoints were superseded, and `wtb admin gc` removed them"
PART = 20_000  # large, because finding some of them costs as much as finding all


@frozen
class Removed:
    """Superseded checkpoints that were removed, with the node runs that went with them."""

    checkpoints: int = 0
    node_runs: int = 0


def superseded(sweep_id: str, before: float) -> sa.Select[Any]:
    """Return the query for checkpoints (id, parent_id) made before a time that are on no such line, children first."""
    named = executions.c.id.in_(named_executions(sweep_id))
    by_people = sa.and_(executions.c.origin == "manual", executions.c.status != "cancelled")
    heads = sa.select(executions.c.head_id).where(
        executions.c.sweep_id == sweep_id, sa.or_(executions.c.status.in_(OPEN_EXECUTIONS), named, by_people)
    )
    left_by_rollbacks = sa.select(rollbacks.c.from_id).where(
        rollbacks.c.sweep_id == sweep_id, rollbacks.c.redone_at.is_(None), rollbacks.c.at >= before
    )
    stays = sa.or_(checkpoints.c.pinned, checkpoints.c.created_at >= before)
    kept_ids = sa.select(checkpoints.c.id).where(checkpoints.c.sweep_id == sweep_id, stays)
    # Joined below, because PostgreSQL is slow to look in a list of many.
    ends = sa.union(heads, kept_ids, left_by_rollbacks).subquery()
    reached = sa.select(checkpoints.c.id, checkpoints.c.parent_id).join(ends, ends.c.head_id == checkpoints.c.id)
    line = reached.cte("line", recursive=True)
    line = line.union(
        sa.select(checkpoints.c.id, checkpoints.c.parent_id).join(line, checkpoints.c.id == line.c.parent_id)
    )
    on_no_line = ~sa.exists().where(line.c.id == checkpoints.c.id)
    step = checkpoints.c.position["step"].as_integer().label("step")
    unreached = (
        sa.select(checkpoints.c.id, checkpoints.c.parent_id, step)
        .where(checkpoints.c.sweep_id == sweep_id, checkpoints.c.created_at < before, on_no_line)
        .cte("found")
        # Otherwise, with a LIMIT, PostgreSQL compares each checkpoint with each of the line.
        .prefix_with("MATERIALIZED", dialect="postgresql")
    )
    return sa.select(unreached.c.id, unreached.c.parent_id).order_by(unreached.c.step.desc(), unreached.c.id.desc())


def has_superseded(database: Database, sweep_id: str, before: float) -> bool:
    return bool(database.tuples(superseded(sweep_id, before).limit(1), long=True))


def remove_superseded(database: Database, sweep_id: str, before: float) -> Removed:
    """Remove up to 20,000 superseded checkpoints of a sweep with the node runs that started from them.

    Executions at one of them stay as history: they move back to the nearest checkpoint that is left. The amount that
    was spent stays in the row of the sweep, and an event reports it.
    """
    with database.write(long=True) as connection:
        sweep = locked_sweep(connection, sweep_id, *settled_conditions())
        if sweep is None:
            return Removed()
        rows = connection.execute(superseded(sweep_id, before).limit(PART))
        parents: dict[str, str | None] = {row.id: row.parent_id for row in rows}
        if not parents:
            return Removed()
        _move_back(connection, parents)
        spent = _remove(connection, sweep, list(parents))
    return Removed(len(parents), spent["node_runs"])


def remove_line(database: Database, sweep_id: str, end: str) -> tuple[CheckpointId, ...]:
    """Remove the line that ends at a checkpoint, up to the first checkpoint that something else needs.

    Returns:
        The ids of the removed checkpoints, the end first.

    Raises:
        ConflictError: If the end itself is needed, or the sweep runs or is kept.
    """
    with database.write(long=True) as connection:
        sweep = locked_sweep(connection, sweep_id, *settled_conditions())
        if sweep is None:
            raise ConflictError(
                f"sweep {sweep_id} is running, pinned, a baseline or part of a pool; its checkpoints stay"
            )
        line = [mark.id for mark in lineage.line(lineage.marks(connection, [end]), end)]
        reach = _Reach(connection, line)
        check_end(end, reach.heads.get(end), reach.followers(end), is_pinned=end in reach.pinned)
        # From the end: a checkpoint may be removed once all that follow from it are.
        removed: list[CheckpointId] = []
        for id in reversed(line):
            if id in reach.heads or id in reach.pinned or reach.followers(id) - set(removed):
                break
            removed += map(CheckpointId, (id, *sorted(reach.leaves(id))))
        _remove(connection, sweep, removed)
    return tuple(removed)


class _Reach:
    """The references to the checkpoints of a line: heads, pins and checkpoints that follow."""

    def __init__(self, connection: sa.Connection, line: Sequence[str]) -> None:
        c = checkpoints.c
        query = sa.select(c.id, c.parent_id, c.inside.is_not(None))
        children = [tuple(row) for row in fetch_among(connection, query, c.parent_id, line)]
        ids = [*line, *(id for id, _, _ in children)]
        heads = fetch_among(connection, sa.select(executions.c.head_id, executions.c.id), executions.c.head_id, ids)
        self.heads: dict[str, str] = {row[0]: row[1] for row in heads}
        pins = fetch_among(connection, sa.select(c.id).where(c.pinned), c.id, ids)
        self.pinned: set[str] = {id for (id,) in pins}
        continued = {id for (id,) in fetch_among(connection, sa.select(c.parent_id), c.parent_id, ids)}
        self._leaves: dict[str, set[str]] = {}
        self._followers: dict[str, set[str]] = {}
        for id, parent, is_inside in children:
            is_leaf = is_inside and id not in continued and id not in self.heads and id not in self.pinned
            (self._leaves if is_leaf else self._followers).setdefault(parent, set()).add(id)

    def leaves(self, id: str) -> set[str]:
        """Return the checkpoints that were taken inside nodes which started from this one, and that nothing refers
        to.
        """
        return self._leaves.get(id, set())

    def followers(self, id: str) -> set[str]:
        """Return the other checkpoints that have this one as their parent."""
        return self._followers.get(id, set())


def _remove(connection: sa.Connection, sweep: SweepRow, ids: Sequence[str]) -> SweepCollectedData:
    """Remove checkpoints of a locked sweep with the node runs from them. Returns the amounts that these have spent."""
    spent = spent_from(connection, ids)
    for part in parts(ids):
        runs = connection.scalars(sa.select(node_runs.c.id).where(node_runs.c.checkpoint_id.in_(part)))
        keep_events(connection, node_runs, runs.all())
        keep_events(connection, checkpoints, part)
    connection.execute(checkpoints.delete().where(checkpoints.c.id.in_(ids)))
    connection.execute(sweeps.update().where(sweeps.c.id == sweep.id).values(collected_with(spent)))
    add_event(connection, of_sweep(sweep), "sweep.collected", cast("Mapping[str, Json]", spent))
    return spent


def imagine_superseded_gone(connection: sa.Connection, sweep_id: str, before: float) -> Removed:
    """Mark the superseded checkpoints of a sweep as gone within `imagining`, and count them with their node runs."""
    query = superseded(sweep_id, before).order_by(None)
    insert = GONE_CHECKPOINTS.insert().from_select(["id"], query.with_only_columns(query.selected_columns.id))
    connection.execute(insert)
    these = sa.select(sa.func.count()).select_from(GONE_CHECKPOINTS)
    noted = these.join(checkpoints, checkpoints.c.id == GONE_CHECKPOINTS.c.id).where(checkpoints.c.sweep_id == sweep_id)
    runs = these.join(node_runs, node_runs.c.checkpoint_id == GONE_CHECKPOINTS.c.id).where(
        node_runs.c.sweep_id == sweep_id
    )
    return Removed(connection.scalar(noted) or 0, connection.scalar(runs) or 0)


def spent_from(connection: sa.Connection, ids: Sequence[str]) -> SweepCollectedData:
    """Return the number of checkpoints, and the amounts that node runs from them have spent, including failed
    attempts.
    """
    runs = sa.select(sa.func.count()).where(node_runs.c.checkpoint_id.in_(ids))
    attempt_sums = (
        sa.select(
            sa.func.count().label("attempts"),
            sa.func.coalesce(sa.func.sum(attempt_column("usd")), 0.0).label("usd"),
            total(attempt_column("tokens_in")).label("tokens_in"),
            total(attempt_column("tokens_out")).label("tokens_out"),
        )
        .select_from(node_runs_with_attempts)
        .where(node_runs.c.checkpoint_id.in_(ids), is_attempt)
    )
    (attempt_count, usd, tokens_in, tokens_out) = connection.execute(attempt_sums).one()
    return {
        "checkpoints": len(ids),
        "node_runs": connection.scalar(runs) or 0,
        "attempts": attempt_count,
        "usd": usd,
        "tokens_in": tokens_in,
        "tokens_out": tokens_out,
    }


def collected_with(spent: SweepCollectedData) -> dict[str, sa.ColumnElement[Any]]:
    """Return the changed columns of a sweep from which records with these amounts were removed."""
    return {
        "collected_usd": sweeps.c.collected_usd + spent["usd"],
        "collected_node_runs": sweeps.c.collected_node_runs + spent["node_runs"],
    }


def _move_back(connection: sa.Connection, parents: dict[str, str | None]) -> None:
    """Move heads from checkpoints that are removed to the nearest ancestor that stays."""
    query = sa.select(executions.c.id, executions.c.head_id, executions.c.reason)
    standing = connection.execute(query.where(executions.c.head_id.in_(list(parents)))).all()
    keep_events(connection, executions, [id for id, _, _ in standing])  # their ends have the results at these heads
    changed = []
    for id, head, reason in standing:
        target: str | None = head
        while target in parents:
            target = parents[target]
        changed.append({"id": id, "head_id": target, "reason": reason or SUPERSEDED})
    update_rows(connection, executions, changed, ("id",))
