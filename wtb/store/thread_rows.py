"""Threads as rows: looking at all of a thread, copying it, and deleting it or a part of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from wtb.store.database import Database
from wtb.store.schema import thread_checkpoints, thread_writes

Row = dict[str, Any]

_CHECKPOINTS, _WRITES = thread_checkpoints.c, thread_writes.c


def outlines(database: Database, session_id: str, thread_id: str) -> list[Row]:
    """All checkpoints of a thread without their values, the newest first."""
    mine = (_CHECKPOINTS.session_id == session_id, _CHECKPOINTS.thread_id == thread_id)
    query = sa.select(thread_checkpoints).where(*mine).order_by(_CHECKPOINTS.id.desc())
    with database.read() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def copy_thread(database: Database, session_id: str, source: str, target: str) -> None:
    """Copy the rows of a thread to another one, naming the same values. What that one has stays as it is."""
    with database.write() as connection:
        if not database.is_sqlite:  # whoever removes values waits
            connection.exec_driver_sql('LOCK TABLE "values" IN ROW EXCLUSIVE MODE')
        for table in (thread_checkpoints, thread_writes):
            own = ("session_id", "thread_id", "created_at")
            columns = ", ".join(column.name for column in table.c if column.name not in own)
            query = (
                f"INSERT INTO {table.name} (session_id, thread_id, {columns}) SELECT session_id, :target, {columns} "
                f"FROM {table.name} WHERE session_id = :session AND thread_id = :source ON CONFLICT DO NOTHING"
            )
            connection.execute(sa.text(query), {"session": session_id, "source": source, "target": target})


def delete_threads(database: Database, session_id: str, thread_ids: Collection[str]) -> None:
    """Delete threads with all that they have."""
    with database.write() as connection:
        for table in (thread_checkpoints, thread_writes):
            mine = table.c.session_id == session_id
            connection.execute(table.delete().where(mine, table.c.thread_id.in_(thread_ids)))


def delete_runs(database: Database, session_id: str, run_ids: Collection[str]) -> None:
    """Delete the checkpoints that runs made, in any thread, with the writes made from them."""
    theirs = (_CHECKPOINTS.session_id == session_id, _CHECKPOINTS.run_id.in_(run_ids))
    made_from = sa.exists().where(
        *theirs,
        _CHECKPOINTS.thread_id == _WRITES.thread_id,
        _CHECKPOINTS.namespace == _WRITES.namespace,
        _CHECKPOINTS.id == _WRITES.checkpoint_id,
    )
    with database.write() as connection:
        connection.execute(thread_writes.delete().where(_WRITES.session_id == session_id, made_from))
        connection.execute(thread_checkpoints.delete().where(*theirs))


def remove_checkpoints(
    database: Database, session_id: str, thread_id: str, namespace: str, ids: Collection[str]
) -> None:
    """Remove some checkpoints of a thread with the writes made from them; their children have no parent then."""

    def here(table: sa.Table) -> list[sa.ColumnElement[bool]]:
        place = {"session_id": session_id, "thread_id": thread_id, "namespace": namespace}
        return [table.c[name] == value for name, value in place.items()]

    with database.write() as connection:
        connection.execute(thread_writes.delete().where(*here(thread_writes), _WRITES.checkpoint_id.in_(ids)))
        connection.execute(thread_checkpoints.delete().where(*here(thread_checkpoints), _CHECKPOINTS.id.in_(ids)))
        orphans = thread_checkpoints.update().where(*here(thread_checkpoints), _CHECKPOINTS.parent_id.in_(ids))
        connection.execute(orphans.values(parent_id=None))
