"""Threads as rows: reading a whole thread, copying it, and deleting it or a part of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, TypedDict

import sqlalchemy as sa

from wtb.core.frozen import frozen
from wtb.core.values import Json
from wtb.store.bulk import among
from wtb.store.database import Database
from wtb.store.tables.schema import sessions, thread_checkpoints, thread_writes


class ThreadMetadata(TypedDict, total=False):
    """The metadata of a checkpoint, as JSON; only the keys that are read here.

    Attributes:
        run_id: The run that made it.
        parents: The checkpoints of the graphs that called this one, by namespace.
        counters_since_delta_snapshot: Counters of channels that store only the writes since their last whole value.
    """

    run_id: str | None
    parents: dict[str, str]
    counters_since_delta_snapshot: Mapping[str, Json]


class ThreadCheckpoint(TypedDict):
    """A checkpoint of a thread, by the columns of its table.

    `state` has the digests of values by channel, `document` the rest of the checkpoint and short values as typed JSON.
    """

    thread_id: str
    namespace: str
    id: str
    parent_id: str | None
    run_id: str | None
    state: dict[str, str]
    document: str
    metadata: ThreadMetadata


class ThreadTask(TypedDict):
    """The common columns of a task's writes. `checkpoint_id` is the checkpoint that it ran from."""

    thread_id: str
    namespace: str
    checkpoint_id: str
    task_id: str
    path: str


class ThreadWrite(ThreadTask):
    """A write, by the columns of its table: its value is in the table of values under a digest, or in the row."""

    number: int
    channel: str
    digest: str | None
    value: str | None


@frozen(slots=True)
class Outline:
    """A checkpoint without its values."""

    namespace: str
    id: str
    parent_id: str | None
    state: Mapping[str, str]
    document: str
    metadata: ThreadMetadata


_CHECKPOINTS, _WRITES = thread_checkpoints.c, thread_writes.c
_PLACE = ("session_id", "thread_id", "namespace")


def outlines(database: Database, session_id: str, thread_id: str) -> list[Outline]:
    """Return all checkpoints of a thread without their values, the newest first."""
    mine = (_CHECKPOINTS.session_id == session_id, _CHECKPOINTS.thread_id == thread_id)
    columns = (_CHECKPOINTS[field.name] for field in fields(Outline))
    return database.records(Outline, sa.select(*columns).where(*mine).order_by(_CHECKPOINTS.id.desc()))


def copy_thread(database: Database, session_id: str, source: str, target: str) -> None:
    """Copy the rows of a thread to another one, naming the same values. Existing rows of the other thread stay."""
    with database.write() as connection:
        if not database.is_sqlite:  # a removal of unnamed values waits for this lock, and then sees the copies
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
    """Delete threads with all their rows."""
    with database.write() as connection:
        for table in (thread_checkpoints, thread_writes):
            mine = table.c.session_id == session_id
            connection.execute(
                table.delete().where(mine, among(table.c.thread_id, thread_ids, on_sqlite=database.is_sqlite))
            )


def delete_runs(database: Database, session_id: str, run_ids: Collection[str]) -> None:
    """Delete the checkpoints that runs made, in any thread, with the writes made from them."""
    c = _CHECKPOINTS
    place = (c.thread_id, c.namespace)
    theirs = sa.select(*place, c.id).where(
        c.session_id == session_id, among(c.run_id, run_ids, on_sqlite=database.is_sqlite)
    )
    with database.write() as connection:
        ids: dict[tuple[str, str], list[str]] = {}
        for thread_id, namespace, id in connection.execute(theirs.order_by(*place, c.id)):
            ids.setdefault((thread_id, namespace), []).append(id)
        for (thread_id, namespace), removed_ids in ids.items():
            _remove(database, connection, (session_id, thread_id, namespace), removed_ids)


def remove_checkpoints(
    database: Database, session_id: str, thread_id: str, namespace: str, ids: Collection[str]
) -> None:
    """Remove some checkpoints of a thread with the writes made from them; their children then have no parent."""
    with database.write() as connection:
        _remove(database, connection, (session_id, thread_id, namespace), ids)


def delete_checkpoints(database: Database, session_id: str, thread_id: str, ids: Collection[str]) -> None:
    """Delete checkpoints of a thread's outer graph, and those that its subgraphs made while it was at one of them."""
    removed: dict[str, list[str]] = {"": list(ids)}
    for row in outlines(database, session_id, thread_id):
        if row.namespace and row.metadata.get("parents", {}).get("") in ids:
            removed.setdefault(row.namespace, []).append(row.id)
    with database.write() as connection:
        for namespace, unneeded in sorted(removed.items()):
            _remove(database, connection, (session_id, thread_id, namespace), unneeded)


def remove_writes_without_session(database: Database) -> None:
    """Remove writes that were stored while their session was being deleted, because nothing refers to them."""
    has_session = sa.exists().where(sessions.c.id == _WRITES.session_id)
    database.execute(thread_writes.delete().where(~has_session), long=True)


def _remove(database: Database, connection: sa.Connection, place: tuple[str, str, str], ids: Collection[str]) -> None:
    def at_place(table: sa.Table) -> list[sa.ColumnElement[bool]]:
        return [table.c[name] == coordinate for name, coordinate in zip(_PLACE, place, strict=True)]

    def is_removed(column: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
        return among(column, ids, on_sqlite=database.is_sqlite)

    connection.execute(thread_writes.delete().where(*at_place(thread_writes), is_removed(_WRITES.checkpoint_id)))
    connection.execute(thread_checkpoints.delete().where(*at_place(thread_checkpoints), is_removed(_CHECKPOINTS.id)))
    # Their parent is gone; a dangling id would look like a lost checkpoint.
    orphans = thread_checkpoints.update().where(*at_place(thread_checkpoints), is_removed(_CHECKPOINTS.parent_id))
    connection.execute(orphans.values(parent_id=None))
