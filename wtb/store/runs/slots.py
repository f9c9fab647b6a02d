"""Slots: the node runs that the live runners of a session may do at a time.

A runner is live while it has not ended and its last heartbeat is not older than `fresh_s` on the database's clock;
`alive` leaves out those that are provably dead although their heartbeat is fresh.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.limits.sessions import Quota, locked_session
from wtb.store.process_identity import Owner, ProcessIdentity
from wtb.store.rows.sweeps import SlotHolder
from wtb.store.tables.column_types import is_ahead
from wtb.store.tables.schema import now, runners, working

Alive = Callable[[Owner], bool]

LEASE_S = float(os.environ.get("WTB_LEASE_S", "30"))  # three heartbeats
_MOST = 2**31 - 1  # what the column holds
# The columns of a runner by which its process is known, as `RunnerOfSession` begins.
PROCESS = tuple(runners.c[name] for name in ("id", "host", "boot", "pid", "process_started_at"))


def is_fresh(fresh_s: float = LEASE_S) -> sa.ColumnElement[bool]:
    """Whether a runner has not ended and its last heartbeat is recent, and not of a clock that was ahead."""
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
        session_id: Whose slots; by default those of all sessions.
        fresh_s: Seconds since the last heartbeat after which a runner counts as dead.
        alive: Leaves out runners that are dead although their heartbeat is fresh.
        but: Which rows of `working` do not count.

    Returns:
        The runners, oldest first, each once for each session.
    """
    busy = sa.select(working.c.runner_id, working.c.session_id, sa.func.count().label("slots"))
    busy = busy if but is None else busy.where(~but)
    lent = busy.group_by(working.c.runner_id, working.c.session_id).subquery()
    whose = sa.func.coalesce(lent.c.session_id, runners.c.session_id)
    query = (
        sa.select(*PROCESS)
        .add_columns(whose.label("session_id"), sa.func.coalesce(lent.c.slots, runners.c.slots).label("slots"))
        .outerjoin(lent, lent.c.runner_id == runners.c.id)
        .where(whose.is_not(None) if session_id is None else whose == session_id, is_fresh(fresh_s))
        .order_by(runners.c.created_at, runners.c.id)
    )
    return [row for row in fetch_records(connection, SlotHolder, query) if alive is None or alive(row)]


def take_slots(
    database: Database,
    runner: ProcessIdentity,
    session_id: str,
    wanted: int,
    fresh_s: float = LEASE_S,
    *,
    alive: Alive | None = None,
) -> int:
    """Register a runner with the number of its concurrent node runs.

    Args:
        database: The database.
        runner: The process.
        session_id: Whose quota of slots counts.
        wanted: How many slots it wants.
        fresh_s: Seconds since the last heartbeat after which other runners count as dead.
        alive: Returns False for a runner that is dead although its heartbeat is recent.

    Returns:
        How many slots it has: at least 1, at most `wanted`.

    Raises:
        ConflictError: If no slot is left; it names who holds them.
        InputError: If the session is gone.
    """
    with database.write() as connection:
        # The lock of the session makes those who ask take turns, so together they never get more than its quota.
        session = locked_session(connection, session_id)
        most = Quota.of(session.quota).node_runs
        given = min(wanted, _MOST)
        if most is not None:
            holders = [row for row in slot_holders(connection, session_id, fresh_s, alive=alive) if row.slots]
            left = most - sum(row.slots for row in holders)
            if left < 1:
                raise ConflictError(_none_left(session.name, most, holders, fresh_s))
            given = min(given, left)
        row = {**asdict(runner), "session_id": session_id, "slots": given, "seen_at": now()}
        connection.execute(runners.insert().values(row))
    return given


def _none_left(name: str, most: int, holders: Sequence[SlotHolder], fresh_s: float) -> str:
    who = ", ".join(f"process {row.pid} on {row.host} ({row.slots:,})" for row in holders[:5])
    more = f" and {len(holders) - 5:,} more" if len(holders) > 5 else ""
    return (
        f"session {name!r}: its quota of node runs at a time ({most:,}) is all taken by {who}{more}; wait until one "
        f"ends (one that died gives back its own within {fresh_s:g} s), or raise it: "
        f"`wtb session change {shlex.quote(name)} --concurrency N`"
    )


def end_runner(database: Database, runner_id: str) -> None:
    """Record that a runner has ended, and release its slots."""
    database.execute(
        runners.update().where(runners.c.id == runner_id, runners.c.ended_at.is_(None)).values(ended_at=now())
    )
