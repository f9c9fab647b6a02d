"""Slots: the node runs that the live runners of a session may do at a time.

A runner is live while it has not ended and its last heartbeat is not older than `fresh_s` on the database's clock;
`alive` leaves out those that are provably dead although their heartbeat is fresh.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.store.bulk import fetch_rows
from wtb.store.database import Database
from wtb.store.limits.sessions import Quota, locked_session
from wtb.store.tables.sweeps import now, runners

Row = dict[str, Any]
Alive = Callable[[Mapping[str, Any]], bool]

LEASE_S = float(os.environ.get("WTB_LEASE_S", "30"))  # three heartbeats
_MOST = 2**31 - 1  # what the column holds


def is_fresh(fresh_s: float = LEASE_S) -> sa.ColumnElement[bool]:
    """Whether a runner has not ended and its last heartbeat is recent."""
    return sa.and_(runners.c.ended_at.is_(None), runners.c.seen_at > now() - fresh_s)


def live_runners(
    database: Database, session_id: str, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> list[Row]:
    """The runners that hold slots of a session, oldest first."""
    with database.read() as connection:
        return live_now(connection, session_id, fresh_s, alive)


def live_now(connection: sa.Connection, session_id: str | None, fresh_s: float, alive: Alive | None) -> list[Row]:
    """The same within a transaction; of all sessions if none is given."""
    mine = runners.c.session_id.is_not(None) if session_id is None else runners.c.session_id == session_id
    query = sa.select(runners).where(mine, is_fresh(fresh_s)).order_by(runners.c.created_at, runners.c.id)
    rows = fetch_rows(connection, query)
    return [row for row in rows if alive is None or alive(row)]


def take_slots(
    database: Database,
    runner: Mapping[str, Any],
    session_id: str,
    wanted: int,
    fresh_s: float = LEASE_S,
    *,
    alive: Alive | None = None,
) -> int:
    """Register a runner with the number of its concurrent node runs. Returns how many: at least 1, at most `wanted`.

    runner: id, host, boot, pid and process_started_at. Raises ConflictError that says who holds them, where none is
    left; InputError where the session is gone.
    """
    with database.write() as connection:
        session = locked_session(connection, session_id)
        most = Quota.of(session["quota"]).node_runs
        given = min(wanted, _MOST)
        if most is not None:
            holders = [row for row in live_now(connection, session_id, fresh_s, alive) if row["slots"]]
            left = most - sum(row["slots"] for row in holders)
            if left < 1:
                raise ConflictError(_none_left(session["name"], most, holders, fresh_s))
            given = min(given, left)
        row = {**runner, "session_id": session_id, "slots": given, "seen_at": now()}
        connection.execute(runners.insert().values(row))
    return given


def _none_left(name: str, most: int, holders: list[Row], fresh_s: float) -> str:
    who = ", ".join(f"process {row['pid']} on {row['host']} ({row['slots']:,})" for row in holders[:5])
    more = f" and {len(holders) - 5:,} more" if len(holders) > 5 else ""
    return (
        f"session {name!r}: its quota of node runs at a time ({most:,}) is all taken by {who}{more}; wait until one "
        f"ends (one that died gives back its own within {fresh_s:g} s), or raise it: "
        f"`wtb session change {name} --concurrency N`"
    )


def end_runner(database: Database, runner_id: str) -> None:
    """Record that a runner has ended, and release its slots."""
    database.execute(
        runners.update().where(runners.c.id == runner_id, runners.c.ended_at.is_(None)).values(ended_at=now())
    )
