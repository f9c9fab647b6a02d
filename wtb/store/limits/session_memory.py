"""The memory quota of sessions: what the node processes of each runner use, and what they may use together."""

from __future__ import annotations

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.store.bulk import fetch_records
from wtb.store.database import Database
from wtb.store.limits.sessions import Quota
from wtb.store.rows.sweeps import MemoryRow
from wtb.store.runs.slots import LEASE_S, PROCESS, Alive, is_fresh
from wtb.store.tables.schema import now, runners, session_memory, sessions


@frozen(slots=True)
class Memory:
    """Bytes of memory. used: in all node processes. largest: in the largest one in which something runs."""

    used: int = 0
    largest: int = 0


@frozen(slots=True)
class Allowed:
    """The memory quota of a session, in bytes, and the name of the session."""

    session: str
    quota: int


def memory_quota(database: Database, session_id: str) -> Allowed | None:
    """Return the memory quota of a session; None if it has none, or is gone."""
    query = sa.select(sessions.c.name, sessions.c.quota).where(sessions.c.id == session_id)
    for name, stored in database.tuples(query):
        quota = Quota.of(stored).memory
        return None if quota is None else Allowed(name, quota)
    return None


def record_memory(database: Database, runner_id: str, session_id: str, memory: Memory | None) -> None:
    """Record what the node processes of a runner use for a session; None removes the row."""
    place = session_memory.c.runner_id == runner_id, session_memory.c.session_id == session_id
    if memory is None:
        database.execute(session_memory.delete().where(*place))
        return
    sizes = {"used": memory.used, "largest": memory.largest, "measured_at": now()}
    with database.write() as connection:
        if not connection.execute(session_memory.update().where(*place).values(sizes)).rowcount:
            connection.execute(session_memory.insert().values(runner_id=runner_id, session_id=session_id, **sizes))


def memory_of_others(
    database: Database, session_id: str, runner_id: str, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> Memory:
    """Return what the node processes of other live runners use for a session."""
    with database.read() as connection:
        rows = [row for row in _rows(connection, session_id, fresh_s, alive) if row.id != runner_id]
    return Memory(sum(row.used for row in rows), max((row.largest for row in rows), default=0))


def memory_used(
    connection: sa.Connection, session_id: str | None = None, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> dict[str, int]:
    """Return the bytes that node processes of live runners use, by session; session_id: of this one only."""
    used: dict[str, int] = {}
    for row in _rows(connection, session_id, fresh_s, alive):
        used[row.session_id] = used.get(row.session_id, 0) + row.used
    return used


def _rows(connection: sa.Connection, session_id: str | None, fresh_s: float, alive: Alive | None) -> list[MemoryRow]:
    query = (
        sa.select(*PROCESS)
        .add_columns(session_memory.c.session_id, session_memory.c.used, session_memory.c.largest)
        .join(session_memory, session_memory.c.runner_id == runners.c.id)
        .where(is_fresh(fresh_s), session_memory.c.measured_at > now() - fresh_s)
    )
    if session_id is not None:
        query = query.where(session_memory.c.session_id == session_id)
    return [row for row in fetch_records(connection, MemoryRow, query) if alive is None or alive(row)]
