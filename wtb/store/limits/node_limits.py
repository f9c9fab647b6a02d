"""Permits: how many runs of a node go on in the whole database, who waits for one, and when the next may start.

A row of `permits` says what a runner has of a node: how many runs, or, below zero, its place in the line of runners
that have none and wait (-1 came first). Only runners that are fresh count. The row of `limited_nodes` is locked by
whoever asks, and nothing else is while it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, StoreError
from wtb.store.bulk import fetch_records, insert_missing
from wtb.store.database import Database
from wtb.store.database_errors import LOCK_NOT_AVAILABLE, sqlstate
from wtb.store.process_identity import Owner
from wtb.store.runs.slots import is_fresh
from wtb.store.tables.column_types import FARTHEST_S
from wtb.store.tables.schema import limited_nodes, now, permits, runners

Alive = Callable[[Owner], bool]


_MOST_WAITING = 10_000  # runs of a node that wait for their turn


@frozen
class Place:
    """A node of a workflow, and the runner that runs it."""

    workflow: str
    node: str
    runner_id: str


@frozen
class Limits:
    """What all runners keep to at a node: so many runs at a time, so many seconds between two starts."""

    runs: int | None = None
    spacing_s: float | None = None


def make_place(database: Database, place: Place) -> None:
    """Create the gate of a node, unless it exists. It is never removed."""
    with database.write() as connection:
        insert_missing(connection, limited_nodes, [{"workflow": place.workflow, "node": place.node}])


def ask(
    database: Database,
    place: Place,
    held: int,
    limits: Limits,
    *,
    fresh_s: float,
    alive: Alive,
) -> float | None:
    """Ask for one more run of a node than the `held` that this runner has.

    Args:
        database: The database.
        place: The node and the runner.
        held: How many runs of the node the runner has.
        limits: What all runners keep to.
        fresh_s: Seconds since its last heartbeat after which a runner counts as dead.
        alive: Returns False for a runner that is dead although its heartbeat is recent.

    Returns:
        Seconds to wait before the start, whose turn is taken. None if there is no permit now: ask again.

    Raises:
        ConflictError: If the runner was removed.
    """
    try:
        with database.write() as connection:
            connection.execute(sa.select(limited_nodes.c.next_at).where(*_of(limited_nodes, place)).with_for_update())
            if limits.runs is not None and not _permitted(connection, place, held, limits.runs, fresh_s, alive):
                return None
            return 0.0 if limits.spacing_s is None else _turn(connection, place, limits.spacing_s)
    except StoreError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:  # whoever asked before was stopped while it did
            return None
        raise


def hold(database: Database, place: Place, held: int, *, waiting: bool = False) -> None:
    """Write how many runs of a node a runner has, whatever was written before.

    Args:
        database: The database.
        place: The node and the runner.
        held: How many runs of the node the runner has.
        waiting: If it has none, it joins the end of the line, in the same transaction: a runner that had to come again
            for its place would be passed over by all that ask meanwhile.

    Raises:
        ConflictError: If the runner was removed.
    """
    with database.write() as connection:
        if waiting and held == 0:
            # The gate is not locked for this: two that come at the same time may share a place.
            last = connection.scalar(sa.select(sa.func.min(permits.c.held)).where(*_of(permits, place)))
            held = min(last or 0, 0) - 1
        _hold(connection, place, held)


def _of(table: sa.Table, place: Place) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.workflow == place.workflow, table.c.node == place.node


class _Permit(NamedTuple):
    """A runner that has permits of a node, or waits for one: then `held` is its place in the line, below 0."""

    runner_id: str
    held: int
    fresh: bool
    host: str
    boot: str
    pid: int
    process_started_at: float


def _permitted(connection: sa.Connection, place: Place, held: int, limit: int, fresh_s: float, alive: Alive) -> bool:
    """Take a permit if one is free and no runner has waited longer; else join the queue of waiting runners."""
    query = (
        sa.select(permits.c.runner_id, permits.c.held, is_fresh(fresh_s).label("fresh"))
        .add_columns(runners.c.host, runners.c.boot, runners.c.pid, runners.c.process_started_at)
        .join(runners, runners.c.id == permits.c.runner_id)
        .where(*_of(permits, place))
    )
    rows = fetch_records(connection, _Permit, query)
    written = next((row.held for row in rows if row.runner_id == place.runner_id), 0)
    others = [row for row in rows if row.runner_id != place.runner_id]
    counting = [row for row in others if row.fresh]
    mine = held or min(written, 0)
    free = _is_free(limit, mine, counting)
    if not free:  # only now, since looking costs more than the rest
        counting = [row for row in counting if alive(row)]
        free = _is_free(limit, mine, counting)
    counted = {row.runner_id for row in counting}
    _drop(connection, place, [row.runner_id for row in others if row.runner_id not in counted])
    if free:
        _hold(connection, place, held + 1)
    else:
        last = min((row.held for row in counting), default=0)
        to_write = mine or min(last, 0) - 1
        if to_write != written:
            _hold(connection, place, to_write)
    return free


def _is_free(limit: int, mine: int, others: Sequence[_Permit]) -> bool:
    """Whether a permit is left after those for runners that have none and have waited longer."""
    taken = max(mine, 0) + sum(max(row.held, 0) for row in others)
    first = sum(row.held < 0 and (mine >= 0 or row.held > mine) for row in others)
    return bool(limit - taken > first)


def _drop(connection: sa.Connection, place: Place, gone: Sequence[str]) -> None:
    """Release permits held by dead runners; a runner that recovers registers its own again."""
    if gone:
        theirs = sa.select(permits.c.runner_id).where(*_of(permits, place), permits.c.runner_id.in_(gone))
        free = theirs.with_for_update(skip_locked=True)
        connection.execute(permits.delete().where(*_of(permits, place), permits.c.runner_id.in_(free)))


def _hold(connection: sa.Connection, place: Place, held: int) -> None:
    """Record how many permits a runner holds. Raises ConflictError if the runner is gone."""
    mine = (*_of(permits, place), permits.c.runner_id == place.runner_id)
    if held == 0:
        connection.execute(permits.delete().where(*mine))
        return
    if connection.execute(permits.update().where(*mine).values(held=held)).rowcount:
        return
    names = ["workflow", "node", "runner_id", "held"]
    row = sa.select(sa.literal(place.workflow), sa.literal(place.node), runners.c.id, sa.literal(held))
    known = row.where(runners.c.id == place.runner_id)
    if connection.execute(permits.insert().from_select(names, known).returning(permits.c.held)).first() is None:
        raise ConflictError(
            f"node {place.node!r}: runner {place.runner_id} is no longer in the database (its session was deleted), "
            "so it may not continue: submit the sweep again"
        )


def _turn(connection: sa.Connection, place: Place, spacing_s: float) -> float:
    """Take the next turn of a node. Returns the seconds until then."""
    farthest = now() + max(FARTHEST_S, _MOST_WAITING * spacing_s)  # later turns are of a clock that was ahead
    next_at = limited_nodes.c.next_at
    start = sa.case((sa.and_(next_at > now(), next_at <= farthest), next_at), else_=now())
    query = (
        limited_nodes.update()
        .where(*_of(limited_nodes, place))
        .values(next_at=start + spacing_s)
        .returning((limited_nodes.c.next_at - spacing_s - now()).label("wait"))
    )
    return max(0.0, float(connection.execute(query).scalar_one()))
