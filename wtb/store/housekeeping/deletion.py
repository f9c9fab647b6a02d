"""Deleting sweeps and sessions. Values and files stay until nothing references them any more."""

from __future__ import annotations

from typing import Protocol

import sqlalchemy as sa

from wtb.core.errors import ConflictError
from wtb.store.database import Database
from wtb.store.housekeeping.retention import REMOVING, locked_sweep, removable
from wtb.store.housekeeping.sizes import total
from wtb.store.limits.sessions import check_not_default, locked_session
from wtb.store.limits.usage import remember_spent
from wtb.store.process_identity import Owner
from wtb.store.read.baselines import check_no_baseline
from wtb.store.rows import OwnerRow, SlotHolder
from wtb.store.runs.leases import owners_of
from wtb.store.runs.slots import slot_holders
from wtb.store.tables.schema import (
    baselines,
    budgets,
    events,
    files,
    runners,
    sessions,
    sweeps,
    thread_checkpoints,
    thread_writes,
)

_PART = 5_000


def delete_sweep(database: Database, sweep_id: str) -> None:
    """Delete a sweep with everything that belongs to it, at once. Raises ConflictError where it is a baseline."""
    with database.write() as connection:
        locked_sweep(connection, sweep_id)  # so that it becomes none meanwhile
        check_no_baseline(connection, sweep_id)
        remember_spent(connection, sweep_id)
        _delete(connection, sweep_id)


def begin_removal(database: Database, sweep_id: str) -> bool:
    """Take a sweep out of use before its rows go in parts: nothing leads on from `cancelled`. False: it stays."""
    with database.write() as connection:
        if locked_sweep(connection, sweep_id, *removable()) is None:
            return False
        begun = sweeps.update().where(sweeps.c.id == sweep_id, sweeps.c.reason.is_distinct_from(REMOVING))
        if connection.execute(begun.values(status="cancelled", reason=REMOVING)).rowcount:
            remember_spent(connection, sweep_id)
    return True


def remove_sweep(database: Database, sweep_id: str) -> None:
    """Delete a sweep whose removal has begun, in parts."""
    # Checkpoints take their node runs, attempts, calls and decisions with them.
    for name in ("events", "scores", "checkpoints", "cells", "executions", "cases", "combinations"):
        while _delete_part(database, name, sweep_id) == _PART:
            pass
    with database.write() as connection:
        _delete(connection, sweep_id)


def _delete(connection: sa.Connection, sweep_id: str) -> None:
    connection.execute(budgets.delete().where(budgets.c.scope == "sweep", budgets.c.key == sweep_id))
    connection.execute(events.delete().where(events.c.sweep_id == sweep_id))
    connection.execute(sweeps.delete().where(sweeps.c.id == sweep_id))


def _delete_part(database: Database, table: str, sweep_id: str) -> int:
    row, several = ("rowid", "IN ({})") if database.is_sqlite else ("ctid", "= ANY(ARRAY({}))")
    some = several.format(f'SELECT {row} FROM "{table}" WHERE sweep_id = :sweep LIMIT {_PART}')
    with database.write() as connection:
        return connection.execute(sa.text(f'DELETE FROM "{table}" WHERE {row} {some}'), {"sweep": sweep_id}).rowcount


class MayLive(Protocol):
    def __call__(self, owner: Owner, *, expired: bool) -> bool: ...


def check_deletable(session_id: str) -> None:
    """Raises ConflictError for the default session."""
    check_not_default(session_id, "deleted")


def delete_session(database: Database, session_id: str, *, may_live: MayLive) -> dict[str, int]:
    """Delete a session with its sweeps, events and runners.

    Args:
        database: The database.
        session_id: The session.
        may_live: Returns False for a runner that is dead, by what says which process it is and by `expired`: whether
            its leases have run out.

    Returns:
        How many `sweeps`, `cells` and `files` it had.

    Raises:
        ConflictError: For the default session, or naming a runner that may live; nothing is deleted then.
    """
    check_deletable(session_id)
    with database.write(long=True) as connection:  # millions of rows may go with one statement
        session = locked_session(connection, session_id, to_delete=True)
        mine = sweeps.c.session_id == session_id
        found: list[OwnerRow | SlotHolder] = [*owners_of(connection, mine), *slot_holders(connection, session_id)]
        for owner in found:
            runs = owner if isinstance(owner, OwnerRow) else None
            if may_live(owner, expired=runs is not None and runs.expired):  # who holds slots was seen lately
                sweep = "a sweep of it" if runs is None else f"sweep {runs.sweep}"
                raise ConflictError(
                    f"session {session.name!r}: process {owner.pid} on {owner.host} is running {sweep}; "
                    "stop that process first"
                )
        count = sa.func.count()
        had, cells = connection.execute(sa.select(count, total(sweeps.c.cells)).where(mine)).one()
        noted = connection.scalar(sa.select(count).where(files.c.session_id == session_id)) or 0
        connection.execute(events.delete().where(events.c.sweep_id.in_(sa.select(sweeps.c.id).where(mine))))
        connection.execute(baselines.delete().where(baselines.c.session_id == session_id))
        ids = sa.select(sweeps.c.id).where(mine)
        theirs = sa.and_(budgets.c.scope == "sweep", budgets.c.key.in_(ids))
        own = sa.and_(budgets.c.scope == "session", budgets.c.key == session_id)
        connection.execute(budgets.delete().where(sa.or_(theirs, own)))
        for table in (sweeps, files, runners, thread_checkpoints, thread_writes):
            connection.execute(table.delete().where(table.c.session_id == session_id))
        connection.execute(sessions.delete().where(sessions.c.id == session_id))
    return {"sweeps": had, "cells": cells, "files": noted}
