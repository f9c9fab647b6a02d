"""Threads: storing the checkpoints and writes of another engine, and finding them again."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import psycopg
import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StoreError
from wtb.core.values import Value
from wtb.store.bulk import insert_values
from wtb.store.database import Database
from wtb.store.database_errors import first_line
from wtb.store.read.queries import values_seen, verified
from wtb.store.tables.schema import sessions, thread_checkpoints, thread_writes
from wtb.store.threads.rows import ThreadCheckpoint, ThreadWrite
from wtb.store.threads.statements import (
    AFTER,
    AFTER_SQLITE,
    CHECKPOINT,
    JSON,
    MOST_APART,
    ORDER,
    PUT_CHECKPOINT_SQLITE,
    PUT_WRITE_SQLITE,
    WRITE,
    put_statement,
    seen,
)

Scalar = str | int | float | bool | None

PAGE = 100
_MOST_CONNECTIONS = 16  # at a time, and kept for the next statements

_in_order = itemgetter(*WRITE)

_Condition = tuple[Any, ...]  # a text of SQL with {} for each value that follows


class Written(NamedTuple):
    """A write as it is found: its value is in the table of values under a digest, or here."""

    task_id: str
    channel: str
    digest: str | None
    value: str | None


@frozen
class Found:
    """A checkpoint as it is stored, the writes made from it, and the values that both name."""

    row: ThreadCheckpoint
    writes: Sequence[Written]
    values: Mapping[str, Value]


class _StoredWrite(ThreadWrite):
    """A write with its session."""

    session_id: str


class Threads:
    """The threads of one session. Python's threads may share it; processes may not."""

    def __init__(self, database: Database, session_id: str) -> None:
        self.database = database
        self.session_id = session_id
        self.is_closed = False
        self._idle: deque[psycopg.Connection[Any]] = deque()
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        weakref.finalize(self, _close, self._idle)

    def close(self) -> None:
        self.is_closed = True
        _close(self._idle)

    def put(
        self,
        checkpoint: ThreadCheckpoint | None,
        writes: Sequence[ThreadWrite],
        new: Mapping[str, bytes],
        known: Collection[str] = (),
    ) -> bool:
        """Store a checkpoint, writes or both in one transaction that is committed when this returns.

        new: the values that they name, by digest. known: digests of those that were stored before and are not given
        again. Returns False, and has stored nothing, where one of those has gone meanwhile. A checkpoint that is there
        is replaced; of writes that are there only those with a negative number are.
        """
        columns = self._columns_of(checkpoint) if checkpoint else ()
        written: list[_StoredWrite] = [{**row, "session_id": self.session_id} for row in writes]
        try:
            if self.database.is_sqlite:
                is_gone, is_mine = self._put_sqlite(columns, written, dict(new), known)
            else:
                is_gone, is_mine = self._put_postgresql(columns, written, new, known)
        except psycopg.errors.ForeignKeyViolation:
            is_gone, is_mine = False, False
        if not is_mine:
            raise InputError("the session was deleted meanwhile; `wtb session list` shows all")
        return not is_gone

    def _columns_of(self, checkpoint: ThreadCheckpoint) -> Sequence[object]:
        """The values of a checkpoint's columns, as statements take them."""
        row = {**checkpoint, "session_id": self.session_id}
        return [_dumps(row[name]) if name in JSON else row[name] for name in CHECKPOINT]

    def _put_postgresql(
        self,
        columns: Sequence[object],
        written: Sequence[_StoredWrite],
        new: Mapping[str, bytes],
        known: Collection[str],
    ) -> tuple[bool, bool]:
        keys = sorted(new)  # in one order for all
        if len(keys) > MOST_APART:
            given: list[object] = [_dumps({key: new[key].decode() for key in keys})]
        else:
            given = [part for key in keys for part in (key, new[key].decode())]
        given += [_dumps(list(known))] if known else []
        given += columns
        given += [_dumps(written)] if written else []
        statement = put_statement(min(len(keys), MOST_APART + 1), bool(known), bool(columns), bool(written))
        ((is_gone, is_mine),) = self._execute(statement, [*given, self.session_id])
        return is_gone, is_mine

    def _put_sqlite(
        self, columns: Sequence[object], written: Sequence[_StoredWrite], new: dict[str, bytes], known: Collection[str]
    ) -> tuple[bool, bool]:
        with self.database.write() as connection:
            if not connection.scalar(sa.select(sa.exists().where(sessions.c.id == self.session_id))):
                return False, False
            if known:
                query = 'SELECT count(*) FROM "values" WHERE digest IN (SELECT value FROM json_each(?))'
                if connection.exec_driver_sql(query, (_dumps(list(known)),)).scalar() != len(known):
                    return True, True
            if new:
                insert_values(connection, sorted(new.items()))
            if columns:
                connection.exec_driver_sql(PUT_CHECKPOINT_SQLITE, tuple(columns))
            if written:
                connection.exec_driver_sql(PUT_WRITE_SQLITE, list(map(_in_order, written)))
        return False, True

    def _execute(self, query: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement that may be executed twice, on a connection that waits for the next one afterwards."""
        with self.database.reached(), self._room:
            while True:
                kept = bool(self._idle)
                try:
                    connection = self._idle.pop() if kept else self.database.detached()
                except IndexError:  # another thread took it
                    continue
                try:
                    rows: list[tuple[Any, ...]] = connection.execute(query, parameters, prepare=True).fetchall()
                except psycopg.Error as error:
                    lost = connection.closed
                    connection.close()
                    if lost and kept:  # the server has ended it since
                        continue
                    if isinstance(error, psycopg.errors.ForeignKeyViolation):  # the session has gone
                        raise
                    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
                        # The lines that follow the first one show values.
                        text = f"database {self.database.shown_url}: {first_line(error)}"
                        raise StoreError(text) from None
                    raise
                self._idle.append(connection)
                if self.is_closed:  # meanwhile
                    _close(self._idle)
                return rows

    def find(
        self,
        *,
        thread_id: str | None = None,
        namespace: str | None = None,
        id: str | None = None,
        ids: Collection[str] | None = None,
        before: str | None = None,
        matching: Mapping[str, Scalar] | None = None,
        channels: Collection[str] | None = None,
        limit: int | None = None,
    ) -> Iterator[Found]:
        """Checkpoints, the newest first, read in pages.

        matching: texts, numbers, bools or None that their metadata must hold, compared by value. channels: those whose
        values and writes are read, by default all.
        """
        wanted: list[_Condition] = [("c.session_id = {}", self.session_id)]
        given = (("thread_id", thread_id), ("namespace", namespace), ("id", id))
        wanted += [(f"c.{name} = {{}}", value) for name, value in given if value is not None]
        if ids is not None:
            each = "value FROM json_each" if self.database.is_sqlite else "json_array_elements_text"
            wanted.append((f"c.id IN (SELECT {each}({{}}))", _dumps(list(ids))))
        if before is not None:
            wanted.append(("c.id < {}", before))
        if matching and self.database.is_sqlite:
            wanted += [_same(key, value) for key, value in matching.items()]
        elif matching:
            wanted.append(("c.metadata @> {}::jsonb", _dumps(dict(matching))))
        last: list[_Condition] = []
        remaining = limit
        values: dict[str, Value] = {}  # of the last page: most of those of the next one are among them
        while remaining is None or remaining > 0:
            size = PAGE if remaining is None else min(remaining, PAGE)
            page = self._page([*wanted, *last], channels, size, values)
            yield from page
            if len(page) < size:
                return
            end = page[-1].row
            place = _dumps([end["id"], end["thread_id"], end["namespace"]])
            remaining = None if remaining is None else remaining - size
            last = [(AFTER_SQLITE if self.database.is_sqlite else AFTER, place)]

    def _page(
        self,
        wanted: Sequence[_Condition],
        channels: Collection[str] | None,
        size: int,
        values: dict[str, Value],
    ) -> list[Found]:
        """values: those that need not be read; afterwards, those that the page names."""
        mark = "?" if self.database.is_sqlite else "%s"
        where = " AND ".join(text.replace("{}", mark) for text, *_ in wanted)
        given = (*(value for _, *values in wanted for value in values), size)
        if self.database.is_sqlite:
            with self.database.read() as connection:
                query = f"SELECT c.* FROM thread_checkpoints AS c WHERE {where} {ORDER} LIMIT ?"
                rows = connection.exec_driver_sql(query, given).mappings().all()
                checkpoints = [self._with_writes(connection, row, channels) for row in rows]
                named = {key for each in checkpoints for key in _named(*each, channels)}
                new = values_seen(self.database, connection, named - values.keys())
        else:
            names = () if channels is None else (_dumps(list(channels)),) * 3
            found = self._execute(seen(where, channels is not None), (*given, _dumps(list(values)), *names))
            those = sorted((place, row, writes) for place, row, writes in found if place is not None)
            checkpoints = [(orjson.loads(row), _written(writes)) for _, row, writes in those]
            named = {key for each in checkpoints for key in _named(*each, channels)}
            stored = {key: data for place, key, data in found if place is None}
            new = verified(stored, sorted(named - values.keys()))
        for key in values.keys() - named:
            del values[key]
        values |= new
        held = dict(values)
        return [Found(row, written, held) for row, written in checkpoints]

    def _with_writes(
        self, connection: sa.Connection, row: sa.RowMapping, channels: Collection[str] | None
    ) -> tuple[ThreadCheckpoint, list[Written]]:
        checkpoint: ThreadCheckpoint = {
            "thread_id": row["thread_id"],
            "namespace": row["namespace"],
            "id": row["id"],
            "parent_id": row["parent_id"],
            "run_id": row["run_id"],
            "state": orjson.loads(row["state"]),
            "document": row["document"],
            "metadata": orjson.loads(row["metadata"]),
        }
        w = thread_writes.c
        place = {w.thread_id: "thread_id", w.namespace: "namespace", w.checkpoint_id: "id"}
        query = sa.select(w.task_id, w.channel, w.digest, w.value).where(
            w.session_id == self.session_id, *(column == row[name] for column, name in place.items())
        )
        if channels is not None:
            query = query.where(w.channel.in_(channels))
        return checkpoint, [Written(*each) for each in connection.execute(query.order_by(w.path, w.task_id, w.number))]

    def ancestors(self, thread_id: str, namespace: str, id: str, channels: Collection[str]) -> Iterator[Found]:
        """The checkpoints that lead to one, its parent first, with what they and their writes have of channels."""
        c = thread_checkpoints.c
        mine = (c.session_id == self.session_id, c.thread_id == thread_id, c.namespace == namespace)
        while True:
            walk = sa.select(c.parent_id.label("id"), sa.literal(1).label("back")).where(*mine, c.id == id)
            line = walk.cte("line", recursive=True)
            further = sa.select(c.parent_id, line.c.back + 1).join(line, c.id == line.c.id)
            line = line.union_all(further.where(*mine, line.c.back < PAGE))
            query = sa.select(line.c.id).where(line.c.id.is_not(None)).order_by(line.c.back)
            ids = self.database.scalars(query)
            these = self.find(thread_id=thread_id, namespace=namespace, ids=ids, channels=channels)
            found = {each.row["id"]: each for each in these}
            yield from (found[id] for id in ids if id in found)
            if len(ids) < PAGE:
                return
            id = ids[-1]


def _close(connections: deque[psycopg.Connection[Any]]) -> None:
    while connections:
        connections.pop().close()


def _written(writes: str | None) -> list[Written]:
    return [Written(*each) for each in (orjson.loads(writes) if writes else [])]


def _named(checkpoint: ThreadCheckpoint, written: Sequence[Written], channels: Collection[str] | None) -> set[str]:
    """The values that a checkpoint, whose state is cut down to the channels that were asked for, and writes name."""
    if channels is not None:
        checkpoint["state"] = {channel: key for channel, key in checkpoint["state"].items() if channel in channels}
    return {*checkpoint["state"].values(), *(each.digest for each in written if each.digest)}


def _same(key: str, value: Scalar) -> _Condition:
    """SQLite's way to ask for a scalar by value: its own comparison would find 1 in true."""
    entry = "EXISTS (SELECT 1 FROM json_each(c.metadata) AS m WHERE m.key = {} AND m.type "
    if value is None or isinstance(value, bool):
        return f"{entry} = {{}})", key, _dumps(value)
    kinds = "('text')" if isinstance(value, str) else "('integer', 'real')"
    return f"{entry} IN {kinds} AND m.value = {{}})", key, value


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
