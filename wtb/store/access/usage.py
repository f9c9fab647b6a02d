"""Usage of sessions, and sizes of a database: files, memory, slots, money, sweeps, cells and values."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypedDict

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.store.access.projects import in_scope
from wtb.store.access.sessions import Quota
from wtb.store.bulk import equal, fetch_records
from wtb.store.cell_status import attempt_column, node_runs_with_attempts, of_node_run
from wtb.store.database import Database
from wtb.store.records import MemoryRow
from wtb.store.runs.slots import LEASE_S, PROCESS, Alive, is_fresh, slot_holders
from wtb.store.tables.column_types import SqlFunction
from wtb.store.tables.schema import (
    attempts,
    events,
    files,
    is_visible,
    metadata,
    node_runs,
    now,
    runners,
    session_memory,
    sessions,
    sweeps,
    values,
)
from wtb.store.tables.sweeps import SessionRow


class octets(SqlFunction[int]):
    """The bytes of a text; 0 if it is NULL."""

    type = sa.BigInteger()
    inherit_cache = True
    postgresql = "coalesce(octet_length({0}), 0)"
    sqlite = "coalesce(length(CAST({0} AS BLOB)), 0)"  # octet_length came with 3.43


def total(size: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """Return the sum of sizes; 0 if there are none."""
    return sa.cast(sa.func.coalesce(sa.func.sum(size), 0), sa.BigInteger)


_stdout, _stderr = attempt_column("stdout"), attempt_column("stderr")
output_size: sa.ColumnElement[int] = octets(_stdout) + octets(_stderr)
"""The bytes of what an attempt printed, for a query of `node_runs_with_attempts`."""
has_output = sa.or_(_stdout.is_not(None), _stderr.is_not(None))


def size(database: Database) -> dict[str, int]:
    """Return the bytes of the database, and the numbers of rows of its main tables."""
    with database.read() as connection:
        if database.is_sqlite:
            pages = connection.scalar(sa.text("PRAGMA page_count")) or 0
            used = pages * (connection.scalar(sa.text("PRAGMA page_size")) or 0)
        else:
            used = connection.scalar(sa.text("SELECT pg_database_size(current_database())")) or 0
        names = ("sweeps", "cells", "executions", "node_runs", "events")
        rows = {
            name: connection.scalar(sa.select(sa.func.count()).select_from(metadata.tables[name])) or 0
            for name in names
        }
    return {"bytes": used, **rows}


class StoredAmounts(TypedDict):
    """Counts and bytes of stored values, of outputs, and of files by the name of each session."""

    values: tuple[int, int]
    outputs: tuple[int, int]
    files: dict[str, tuple[int, int]]


def stored_amounts(database: Database) -> StoredAmounts:
    """Return the amounts stored in a database, and the amounts of files that it refers to."""
    count = sa.func.count()
    stored = sa.select(count, total(octets(values.c.data)))
    outputs = sa.select(count, total(output_size)).select_from(node_runs_with_attempts).where(has_output)
    noted = (
        sa.select(sessions.c.name, count, total(files.c.size))
        .join(files, files.c.session_id == sessions.c.id)
        .group_by(sessions.c.name)
        .order_by(sessions.c.name)
    )
    with database.read(long=True) as connection:
        return {
            "values": _pair(connection, stored),
            "outputs": _pair(connection, outputs),
            "files": {name: (number, size) for name, number, size in connection.execute(noted)},
        }


def _pair(connection: sa.Connection, query: sa.Select[int, int]) -> tuple[int, int]:
    count, size = connection.execute(query).one()
    return count, size


@frozen(slots=True)
class Memory:
    """Bytes of memory.

    Attributes:
        used: The sum of all node processes.
        largest: The largest node process in which a node runs.
    """

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
    """Record the memory that the node processes of a runner use for a session; None removes the row."""
    place = session_memory.c.runner_id == runner_id, session_memory.c.session_id == session_id
    if memory is None:
        database.execute(session_memory.delete().where(*place))
        return
    sizes = {"used": memory.used, "largest": memory.largest, "measured_at": now()}
    # No upsert: this process alone writes its row, which nearly always exists.
    with database.write() as connection:
        if not connection.execute(session_memory.update().where(*place).values(sizes)).rowcount:
            connection.execute(session_memory.insert().values(runner_id=runner_id, session_id=session_id, **sizes))


def memory_of_others(
    database: Database, session_id: str, runner_id: str, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> Memory:
    """Return the memory that the node processes of other live runners use for a session."""
    with database.read() as connection:
        rows = [row for row in _rows(connection, session_id, fresh_s, alive) if row.id != runner_id]
    return Memory(sum(row.used for row in rows), max((row.largest for row in rows), default=0))


def memory_used(
    connection: sa.Connection, session_id: str | None = None, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> dict[str, int]:
    """Return the bytes that node processes of live runners use, by session; session_id: of this one only."""
    used = Counter[str]()
    for row in _rows(connection, session_id, fresh_s, alive):
        used[row.session_id] += row.used
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


_ended_at = attempt_column("started_at") + attempt_column("duration_s")
_newest_attempt = sa.func.max(sa.func.coalesce(_ended_at, node_runs.c.started_at))


@frozen
class Usage:
    """Usage of a session.

    Attributes:
        disk_bytes: The size of the files that its snapshots refer to.
        slots: The slots of its live runners.
        usd: The US dollars that all attempts of its sweeps have spent, including deleted sweeps.
        sweeps: How many sweeps it has.
        cells: How many cells they have.
        tokens: The tokens of the present sweeps.
        active_at: The time of the newest event or attempt of its sweeps; None if it has none.
        memory: Bytes in its node processes; None if they are not measured, because it has no quota of memory.
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
    """Return the usage of a session now."""
    with database.read() as connection:
        return _usages(connection, fresh_s, alive, session_id).get(session_id, Usage())


def session_rows(
    database: Database, fresh_s: float = LEASE_S, *, alive: Alive | None = None
) -> list[tuple[SessionRow, Usage]]:
    """Return all sessions by name, including archived ones, each with its usage."""
    with database.read() as connection:
        rows = fetch_records(
            connection, SessionRow, sa.select(sessions).where(*in_scope(connection, sessions)).order_by(sessions.c.name)
        )
        used = _usages(connection, fresh_s, alive)
    return [(row, used[row.id]) for row in rows]


def _usages(
    connection: sa.Connection, fresh_s: float, alive: Alive | None, session_id: str | None = None
) -> dict[str, Usage]:
    """Return usage by session, of one or of all that the caller may see."""
    seen = in_scope(connection, sessions)

    def by_session(
        source: sa.FromClause, column: sa.Column[Any], *figures: sa.ColumnElement[Any]
    ) -> dict[str, list[Any]]:
        query = sa.select(column, *figures).select_from(source).group_by(column).where(*equal({column: session_id}))
        if seen:
            query = query.where(column.in_(sa.select(sessions.c.id).where(*seen)))
        if column is sweeps.c.session_id:
            query = query.where(is_visible)
        return {session: sums for session, *sums in connection.execute(query)}

    # Each figure is summed in a query of its own: joined in one, the rows of one table would multiply those of another.
    tries = sweeps.join(node_runs, node_runs.c.sweep_id == sweeps.c.id).outerjoin(attempts, of_node_run)
    usd_of_attempts = sa.func.sum(attempt_column("usd"))
    tokens_of_attempts = total(attempt_column("tokens_in") + attempt_column("tokens_out"))
    disk = by_session(files, files.c.session_id, total(files.c.size))
    had = by_session(
        sweeps, sweeps.c.session_id, sa.func.count(), total(sweeps.c.cells), sa.func.sum(sweeps.c.collected_usd)
    )
    attempt_figures = by_session(tries, sweeps.c.session_id, usd_of_attempts, tokens_of_attempts, _newest_attempt)
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
        usd, tokens, tried_at = attempt_figures.get(session, [0.0, 0, None])
        active_at = max((at for at in (*moments.get(session, ()), tried_at) if at is not None), default=None)
        spent = deleted + collected + usd
        usages[session] = Usage(disk_bytes, slots[session], spent, count, cells, tokens, active_at, memory.get(session))
    return usages


def disk_used(database: Database, session_id: str) -> int:
    """Return the bytes of the files that the snapshots of a session refer to."""
    return database.scalar(sa.select(total(files.c.size)).where(files.c.session_id == session_id)) or 0


def remember_spent(connection: sa.Connection, sweep_id: str, usd: float) -> None:
    """Add the cost of a sweep to its session, where it counts after the sweep is deleted."""
    session = sa.select(sweeps.c.session_id).where(sweeps.c.id == sweep_id).scalar_subquery()
    changed = sessions.update().where(sessions.c.id == session).values(deleted_usd=sessions.c.deleted_usd + usd)
    connection.execute(changed)


def sweeps_by_status(database: Database, session_id: str) -> dict[str, int]:
    """Return the number of sweeps of a session by status."""
    query = sa.select(sweeps.c.status, sa.func.count()).where(sweeps.c.session_id == session_id, is_visible)
    return dict(map(tuple, database.tuples(query.group_by(sweeps.c.status).order_by(sweeps.c.status))))
