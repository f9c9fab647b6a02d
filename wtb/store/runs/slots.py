"""Slots, the number of node runs that the live runners of a session may run at a time, and permits, that of a node.

A runner is live while it has not ended and its last heartbeat is not older than `fresh_s` on the database's clock.
`alive` leaves out runners that are provably dead although their heartbeat is fresh.

A row of `permits` holds the number of runs that a runner has of a node in the whole database. Below zero, it is the
place of a runner that waits (-1 came first). Only runners with a fresh heartbeat count. Each request locks the row of
`limited_nodes`, which also spaces starts, and holds no other lock while it waits for that.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from wtb.core.errors import ConflictError, StoreError
from wtb.core.frozen import frozen
from wtb.store.access.sessions import Quota, locked_session
from wtb.store.bulk import fetch_records, insert_missing
from wtb.store.database import Database
from wtb.store.database_url import LOCK_NOT_AVAILABLE, sqlstate
from wtb.store.records import SlotHolder
from wtb.store.tables.column_types import FARTHEST_S, is_ahead
from wtb.store.tables.schema import limited_nodes, now, permits, runners, working

if TYPE_CHECKING:
    from wtb.store.process_identity import Owner, ProcessIdentity


Alive = Callable[["Owner"], bool]

LEASE_S = float(os.environ.get("WTB_LEASE_S", "30"))  # three heartbeats
_MAX_SLOTS = 2**31 - 1  # what the column holds
# The columns of a runner by which its process is known, as `RunnerOfSession` begins.
PROCESS = tuple(runners.c[name] for name in ("id", "host", "boot", "pid", "process_started_at"))


def is_fresh(fresh_s: float = LEASE_S) -> sa.ColumnElement[bool]:
    """Return the condition that a runner has not ended, and that its last heartbeat is recent and not from a clock
    ahead.
    """
    seen_at = runners.c.seen_at
    return sa.and_(runners.c.ended_at.is_(None), seen_at > now() - fresh_s, sa.not_(is_ahead(seen_at)))


def live_runners(
    database: Database, session_id: str, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> list[SlotHolder]:
    """Return the runners that hold slots of a session, as `slot_holders` does."""
    with database.read() as connection:
        return slot_holders(connection, session_id, fresh_s, alive=alive)


def slot_holders(
    connection: sa.Connection,
    session_id: str | None = None,
    fresh_s: float = LEASE_S,
    *,
    alive: Alive | None = None,
    but: sa.ColumnElement[bool] | None = None,
) -> list[SlotHolder]:
    """Find the runners that hold slots: those that took theirs when they started, and workers by their busy ones.

    Args:
        connection: In a transaction, for an exact figure one that has locked the session.
        session_id: The session that owns the slots; by default all sessions.
        fresh_s: Seconds since the last heartbeat after which a runner counts as dead.
        alive: Leaves out runners that are dead although their heartbeat is fresh.
        but: A condition for rows of `working` that do not count.

    Returns:
        The runners, oldest first, each once for each session.
    """
    busy = sa.select(working.c.runner_id, working.c.session_id, sa.func.count().label("slots"))
    busy = busy if but is None else busy.where(~but)
    lent = busy.group_by(working.c.runner_id, working.c.session_id).subquery()
    # A worker holds slots of each session by its busy ones; a process that runs a sweep alone holds all that it took.
    whose = sa.func.coalesce(lent.c.session_id, runners.c.session_id)
    query = (
        sa.select(*PROCESS)
        .add_columns(whose.label("session_id"), sa.func.coalesce(lent.c.slots, runners.c.slots).label("slots"))
        .outerjoin(lent, lent.c.runner_id == runners.c.id)
        .where(whose.is_not(None) if session_id is None else whose == session_id, is_fresh(fresh_s))
        .order_by(runners.c.created_at, runners.c.id)
    )
    return [row for row in fetch_records(connection, SlotHolder, query) if alive is None or alive(row)]


def register_runner(
    database: Database,
    runner: ProcessIdentity,
    session_id: str,
    requested: int,
    fresh_s: float = LEASE_S,
    *,
    alive: Alive | None = None,
) -> int:
    """Register a runner with the number of its concurrent node runs.

    Args:
        database: The database.
        runner: The process.
        session_id: The session whose quota of slots counts.
        requested: How many slots it wants.
        fresh_s: Seconds since the last heartbeat after which other runners count as dead.
        alive: Returns False for a runner that is dead although its heartbeat is recent.

    Returns:
        The number of its slots: at least 1, at most `requested`.

    Raises:
        ConflictError: If no slot is left; the error names the processes that hold them.
        InputError: If the session was deleted.
    """
    with database.write() as connection:
        # The lock of the session makes runners take turns, so that together they never get more than its quota.
        session = locked_session(connection, session_id)
        limit = Quota.of(session.quota).node_runs
        # Before the quota: a session without one takes whatever number is requested, which must fit the column.
        slot_count = min(requested, _MAX_SLOTS)
        if limit is not None:
            holders = [row for row in slot_holders(connection, session_id, fresh_s, alive=alive) if row.slots]
            free = limit - sum(row.slots for row in holders)
            if free < 1:
                raise ConflictError(_none_left(session.name, limit, holders, fresh_s))
            slot_count = min(slot_count, free)
        row = {**asdict(runner), "session_id": session_id, "slots": slot_count, "seen_at": now()}
        connection.execute(runners.insert().values(row))
    return slot_count


def _none_left(name: str, limit: int, holders: Sequence[SlotHolder], fresh_s: float) -> str:
    who = ", ".join(f"process {row.pid} on {row.host} ({row.slots:,})" for row in holders[:5])
    more = f" and {len(holders) - 5:,} more" if len(holders) > 5 else ""
    return (
        f"session {name!r}: its quota of node runs at a time ({limit:,}) is all taken by {who}{more}; wait until one "
        f"ends (one that died gives back its own within {fresh_s:g} s), or raise it: "
        f"`wtb admin session change {shlex.quote(name)} --concurrency N`"
    )


def end_runner(database: Database, runner_id: str) -> None:
    """Record that a runner has ended, and release its slots."""
    database.execute(
        runners.update().where(runners.c.id == runner_id, runners.c.ended_at.is_(None)).values(ended_at=now())
    )


_MOST_WAITING = 10_000  # runs of a node that wait for their turn


@frozen
class Place:
    """A node of a workflow, and the runner that runs it."""

    workflow: str
    node: str
    runner_id: str


@frozen
class Limits:
    """The limits of a node for all runners together: runs at a time, and seconds between two starts."""

    runs: int | None = None
    spacing_s: float | None = None


def make_place(database: Database, place: Place) -> None:
    """Create the gate of a node, unless it exists. It is never removed."""
    with database.write() as connection:
        insert_missing(connection, limited_nodes, [{"workflow": place.workflow, "node": place.node}])


def ask(
    database: Database, place: Place, run_count: int, limits: Limits, *, fresh_s: float, alive: Alive
) -> float | None:
    """Request one more run of a node than the `run_count` that this runner has.

    Args:
        database: The database.
        place: The node and the runner.
        run_count: How many runs of the node the runner has.
        limits: The limits for all runners together.
        fresh_s: Seconds since its last heartbeat after which a runner counts as dead.
        alive: Returns False for a runner that is dead although its heartbeat is recent.

    Returns:
        Seconds to wait before the start, whose turn is taken. None if there is no permit now, so that the runner has to
        request again.

    Raises:
        ConflictError: If the runner was removed.
    """
    try:
        with database.write() as connection:
            # The gate: requests for a node take turns, so that they never count on the same free permit.
            connection.execute(sa.select(limited_nodes.c.next_at).where(*_of(limited_nodes, place)).with_for_update())
            if limits.runs is not None and not _permitted(connection, place, run_count, limits.runs, fresh_s, alive):
                return None
            return 0.0 if limits.spacing_s is None else _turn(connection, place, limits.spacing_s)
    except StoreError as error:
        if sqlstate(error) == LOCK_NOT_AVAILABLE:  # the process that holds the gate was stopped while it did
            return None
        raise


def hold(database: Database, place: Place, run_count: int, *, waiting: bool = False) -> None:
    """Write how many runs of a node a runner has, whatever was written before.

    Args:
        database: The database.
        place: The node and the runner.
        run_count: How many runs of the node the runner has.
        waiting: If it has none, let it join the end of the line in the same transaction. A runner that had to request
            its place again would be passed over by all that request meanwhile.

    Raises:
        ConflictError: If the runner was removed.
    """
    with database.write() as connection:
        if waiting and run_count == 0:
            # The gate is not locked for this: two that come at the same time may share a place.
            last = connection.scalar(sa.select(sa.func.min(permits.c.held)).where(*_of(permits, place)))
            run_count = min(last or 0, 0) - 1
        _hold(connection, place, run_count)


def _of(table: sa.Table, place: Place) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.workflow == place.workflow, table.c.node == place.node


class _Permit(NamedTuple):
    """A runner that has permits of a node or waits for one; if it waits, `held` is its place in the line, below 0."""

    runner_id: str
    held: int
    fresh: bool
    host: str
    boot: str
    pid: int
    process_started_at: float


def _permitted(
    connection: sa.Connection, place: Place, run_count: int, limit: int, fresh_s: float, alive: Alive
) -> bool:
    """Take a permit if one is free and no runner has waited longer; else join the queue of waiting runners."""
    query = (
        sa.select(permits.c.runner_id, permits.c.held, is_fresh(fresh_s).label("fresh"))
        .add_columns(runners.c.host, runners.c.boot, runners.c.pid, runners.c.process_started_at)
        .join(runners, runners.c.id == permits.c.runner_id)
        .where(*_of(permits, place))
    )
    rows = fetch_records(connection, _Permit, query)
    written = next((row.held for row in rows if row.runner_id == place.runner_id), 0)
    other_rows = [row for row in rows if row.runner_id != place.runner_id]
    counting = [row for row in other_rows if row.fresh]
    # A runner that waits keeps its place in the line; counts that it wrote earlier may be out of date.
    mine = run_count or min(written, 0)
    free = _is_free(limit, mine, counting)
    if not free:  # only now, since looking costs more than the rest
        counting = [row for row in counting if alive(row)]
        free = _is_free(limit, mine, counting)
    counted = {row.runner_id for row in counting}
    _drop(connection, place, [row.runner_id for row in other_rows if row.runner_id not in counted])
    if free:
        _hold(connection, place, run_count + 1)
    else:
        last = min((row.held for row in counting), default=0)
        to_write = mine or min(last, 0) - 1
        if to_write != written:
            _hold(connection, place, to_write)
    return free


def _is_free(limit: int, mine: int, other_rows: Sequence[_Permit]) -> bool:
    """Return whether a permit is left after those for runners that have none and have waited longer."""
    used = max(mine, 0) + sum(max(row.held, 0) for row in other_rows)
    first = sum(row.held < 0 and (mine >= 0 or row.held > mine) for row in other_rows)
    return bool(limit - used > first)


def _drop(connection: sa.Connection, place: Place, dead_runners: Sequence[str]) -> None:
    """Release permits held by dead runners; a runner that recovers registers its own again."""
    if dead_runners:
        theirs = sa.select(permits.c.runner_id).where(*_of(permits, place), permits.c.runner_id.in_(dead_runners))
        # Rows that are locked belong to runners that just write them, so those are not dead.
        free = theirs.with_for_update(skip_locked=True)
        connection.execute(permits.delete().where(*_of(permits, place), permits.c.runner_id.in_(free)))


def _hold(connection: sa.Connection, place: Place, run_count: int) -> None:
    """Record how many permits a runner holds. Raises ConflictError if the runner is gone."""
    mine = (*_of(permits, place), permits.c.runner_id == place.runner_id)
    if run_count == 0:
        connection.execute(permits.delete().where(*mine))
        return
    if connection.execute(permits.update().where(*mine).values(held=run_count)).rowcount:
        return
    names = ["workflow", "node", "runner_id", "held"]
    row = sa.select(sa.literal(place.workflow), sa.literal(place.node), runners.c.id, sa.literal(run_count))
    # Selected from `runners`, so that a runner that was removed adds no row, and that is noticed.
    existing = row.where(runners.c.id == place.runner_id)
    if connection.execute(permits.insert().from_select(names, existing).returning(permits.c.held)).first() is None:
        raise ConflictError(
            f"node {place.node!r}: runner {place.runner_id} is no longer in the database (its session was deleted), "
            "so it may not continue: submit the sweep again"
        )


def _turn(connection: sa.Connection, place: Place, spacing_s: float) -> float:
    """Take the next turn of a node. Returns the seconds until then."""
    farthest = now() + max(FARTHEST_S, _MOST_WAITING * spacing_s)  # later turns are of a clock that was ahead
    next_at = limited_nodes.c.next_at
    # A turn beyond `farthest` or in the past is replaced by now, so that a wrong clock cannot block a node for good.
    start = sa.case((sa.and_(next_at > now(), next_at <= farthest), next_at), else_=now())
    query = (
        limited_nodes.update()
        .where(*_of(limited_nodes, place))
        .values(next_at=start + spacing_s)
        .returning((limited_nodes.c.next_at - spacing_s - now()).label("wait"))
    )
    return max(0.0, float(connection.execute(query).scalar_one()))
