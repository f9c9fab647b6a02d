"""What sessions use: files, memory, slots, money, sweeps and cells."""

from __future__ import annotations

from collections import Counter
from typing import Any

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.store.access.scope import in_scope
from wtb.store.attempt_columns import attempt_column, of_node_run
from wtb.store.bulk import equal, fetch_records
from wtb.store.database import Database
from wtb.store.housekeeping.sizes import total
from wtb.store.limits.session_memory import memory_used
from wtb.store.runs.slots import LEASE_S, Alive, slot_holders
from wtb.store.tables.schema import attempts, events, files, is_visible, node_runs, sessions, sweeps
from wtb.store.tables.sweeps import SessionRow

_ended_at = attempt_column("started_at") + attempt_column("duration_s")
_newest_attempt = sa.func.max(sa.func.coalesce(_ended_at, node_runs.c.started_at))


@frozen
class Usage:
    """What a session uses. disk_bytes: of the files that its snapshots refer to. slots: of its live runners.

    usd: what all attempts of its sweeps have really spent, of those deleted since, too. tokens: of those there.
    active_at: the time of the newest event or attempt of its sweeps; None if it has none. memory: bytes in its node
    processes; None if that is not measured, since it has no quota of memory.
    """

    disk_bytes: int = 0
    slots: int = 0
    usd: float = 0.0
    sweeps: int = 0
    cells: int = 0
    tokens: int = 0
    active_at: float | None = None
    memory: int | None = None


def usage(database: Database, session_id: str, fresh_s: float = LEASE_S, *, alive: Alive | None = None) -> Usage:
    """What a session uses now."""
    with database.read() as connection:
        return _usages(connection, fresh_s, alive, session_id).get(session_id, Usage())


def session_rows(
    database: Database, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> list[tuple[SessionRow, Usage]]:
    """All sessions by name, archived ones too, each with what it uses."""
    with database.read() as connection:
        rows = fetch_records(
            connection, SessionRow, sa.select(sessions).where(*in_scope(connection, sessions)).order_by(sessions.c.name)
        )
        used = _usages(connection, fresh_s, alive)
    return [(row, used[row.id]) for row in rows]


def _usages(
    connection: sa.Connection, fresh_s: float, alive: Alive | None, session_id: str | None = None
) -> dict[str, Usage]:
    """Usage by session, of one or of all that somebody may see."""
    seen = in_scope(connection, sessions)

    def by_session(
        source: sa.FromClause, column: sa.Column[Any], *figures: sa.ColumnElement[Any]
    ) -> dict[str, list[Any]]:
        query = sa.select(column, *figures).select_from(source).group_by(column).where(*equal({column: session_id}))
        if seen:
            query = query.where(column.in_(sa.select(sessions.c.id).where(*seen)))
        if column is sweeps.c.session_id:
            query = query.where(is_visible)
        return {session: found for session, *found in connection.execute(query)}

    tries = sweeps.join(node_runs, node_runs.c.sweep_id == sweeps.c.id).outerjoin(attempts, of_node_run)
    usd_of_attempts = sa.func.sum(attempt_column("usd"))
    tokens_of_attempts = total(attempt_column("tokens_in") + attempt_column("tokens_out"))
    disk = by_session(files, files.c.session_id, total(files.c.size))
    had = by_session(
        sweeps, sweeps.c.session_id, sa.func.count(), total(sweeps.c.cells), sa.func.sum(sweeps.c.collected_usd)
    )
    tried = by_session(tries, sweeps.c.session_id, usd_of_attempts, tokens_of_attempts, _newest_attempt)
    newest_event = (
        sa.select(events.c.at)
        .where(events.c.sweep_id == sweeps.c.id)
        .order_by(events.c.transaction.desc(), events.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    moments = by_session(sweeps, sweeps.c.session_id, sa.func.max(sweeps.c.created_at), sa.func.max(newest_event))
    slots = Counter[str]()
    for runner in slot_holders(connection, session_id, fresh_s, alive=alive):
        slots[runner.session_id] += runner.slots
    memory = memory_used(connection, session_id, fresh_s, alive=alive)
    usages = {}
    for session, (deleted,) in by_session(sessions, sessions.c.id, sa.func.sum(sessions.c.deleted_usd)).items():
        (disk_bytes,), (count, cells, collected) = disk.get(session, [0]), had.get(session, [0, 0, 0.0])
        usd, tokens, tried_at = tried.get(session, [0.0, 0, None])
        active_at = max((at for at in (*moments.get(session, ()), tried_at) if at is not None), default=None)
        spent = deleted + collected + usd
        usages[session] = Usage(disk_bytes, slots[session], spent, count, cells, tokens, active_at, memory.get(session))
    return usages


def disk_used(database: Database, session_id: str) -> int:
    """Return the bytes of the files that the snapshots of a session refer to."""
    return database.scalar(sa.select(total(files.c.size)).where(files.c.session_id == session_id)) or 0


def remember_spent(connection: sa.Connection, sweep_id: str, usd: float) -> None:
    """What a sweep has spent counts for its session, also when the sweep is gone."""
    session = sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id).scalar_subquery()
    changed = sessions.update().where(sessions.c.id == session).values(deleted_usd=sessions.c.deleted_usd + usd)
    connection.execute(changed)


def sweeps_by_status(database: Database, session_id: str) -> dict[str, int]:
    """How many sweeps of each status a session has."""
    query = sa.select(sweeps.c.status, sa.func.count()).where(sweeps.c.session_id == session_id, is_visible)
    return dict(map(tuple, database.tuples(query.group_by(sweeps.c.status).order_by(sweeps.c.status))))
