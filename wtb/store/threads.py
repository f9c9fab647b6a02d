"""Storage of the checkpoints and writes of another engine, and finding them again."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
import psycopg
import sqlalchemy as sa

from wtb.core.errors import InputError, StoreError
from wtb.core.frozen import frozen
from wtb.core.values import Value
from wtb.store.bulk import insert_values
from wtb.store.database import Database
from wtb.store.database_url import first_line
from wtb.store.read.queries import values_seen, verified
from wtb.store.tables.schema import sessions, thread_checkpoints, thread_writes
from wtb.store.thread_rows import ThreadCheckpoint, ThreadWrite

CHECKPOINT_KEY = tuple(column.name for column in thread_checkpoints.primary_key)
_CHECKPOINT_REST = tuple(
    column.name for column in thread_checkpoints.c if column.name not in (*CHECKPOINT_KEY, "created_at")
)
CHECKPOINT = (*CHECKPOINT_KEY, *_CHECKPOINT_REST)
_WRITE_KEY = tuple(column.name for column in thread_writes.primary_key)
_WRITE_REST = tuple(column.name for column in thread_writes.c if column.name not in _WRITE_KEY)
WRITE = (*_WRITE_KEY, *_WRITE_REST)
JSON = ("state", "metadata")
"""Columns of a checkpoint that hold JSON."""

MOST_APART = 4
"""So many values are parameters of their own: as text within JSON they are escaped and read once more."""


def _upsert(table: str, key: Sequence[str], rest: Sequence[str], source: str, only: str = "") -> str:
    columns = ", ".join((*key, *rest))
    sets = ", ".join(f"{name} = excluded.{name}" for name in rest)
    return f"INSERT INTO {table} ({columns}) {source} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}{only}"


_REPLACED_WRITES = " WHERE excluded.number < 0"  # all other writes stay as they were stored first
PUT_CHECKPOINT_SQLITE = _upsert(
    "thread_checkpoints", CHECKPOINT_KEY, _CHECKPOINT_REST, f"VALUES ({', '.join('?' * len(CHECKPOINT))})"
)
PUT_WRITE_SQLITE = _upsert(
    "thread_writes", _WRITE_KEY, _WRITE_REST, f"VALUES ({', '.join('?' * len(WRITE))})", _REPLACED_WRITES
)


@cache
def put_statement(new: int, has_known: bool, checkpoint: bool, written: bool) -> str:
    """Return the statement that stores the parts that there are.

    Its parameters are the values, the digests that must be stored, the checkpoint's columns, the writes, and the
    session. Its row has whether a value that must be stored is missing, and whether the session exists.

    Args:
        new: The number of new values.
        has_known: Whether any digests must be stored already.
        checkpoint: Whether it has a checkpoint.
        written: Whether it has writes.
    """
    parts = []
    # The statement locks the table of values before it reads it. So a removal of values that nobody names waits for
    # it, and it sees earlier removals; even if no value is new, because it might write one.
    if new > MOST_APART:
        source = "SELECT key, value FROM json_each_text(%s::json)"
    else:
        source = f"VALUES {', '.join(['(%s::text, %s::text)'] * new)}" if new else "SELECT NULL, NULL WHERE false"
    if new or has_known:
        parts.append(f'new AS (INSERT INTO "values" (digest, data) {source} ON CONFLICT DO NOTHING)')
    if has_known:
        absent = 'NOT EXISTS (SELECT FROM "values" AS v WHERE v.digest = k.key)'
        parts.append(f"gone AS (SELECT key FROM json_array_elements_text(%s::json) AS k(key) WHERE {absent})")
    only = "NOT EXISTS (SELECT FROM gone)" if has_known else "true"
    if checkpoint:
        columns = ", ".join(f"%s::{'jsonb' if name in JSON else 'text'}" for name in CHECKPOINT)
        row = _upsert("thread_checkpoints", CHECKPOINT_KEY, _CHECKPOINT_REST, f"SELECT {columns} WHERE {only}")
        parts.append(f"made AS ({row})")
    if written:
        rows_query = f"SELECT {', '.join(WRITE)} FROM json_populate_recordset(NULL::thread_writes, %s::json) AS w"
        mine = "EXISTS (SELECT FROM sessions AS s WHERE s.id = w.session_id)"
        rows = _upsert(
            "thread_writes", _WRITE_KEY, _WRITE_REST, f"{rows_query} WHERE {only} AND {mine}", _REPLACED_WRITES
        )
        parts.append(f"written AS ({rows})")
    is_gone = "EXISTS (SELECT FROM gone)" if has_known else "false"
    return f"WITH {', '.join(parts)} SELECT {is_gone}, EXISTS (SELECT FROM sessions WHERE id = %s)"


_OF_ROW = (
    "w.session_id = c.session_id AND w.thread_id = c.thread_id AND w.namespace = c.namespace AND w.checkpoint_id = c.id"
)
ORDER = "ORDER BY c.id DESC, c.thread_id DESC, c.namespace DESC"
AFTER = "(c.id, c.thread_id, c.namespace) < (SELECT j ->> 0, j ->> 1, j ->> 2 FROM (SELECT {}::json AS j) AS place)"
AFTER_SQLITE = AFTER.replace("{}::json", "{}")


@cache
def seen(where: str, some: bool) -> str:
    """Return the query for checkpoints with their writes and values, in one round trip and one snapshot of the
    database.

    It returns a row for each checkpoint: its place among them, the row and its writes, as JSON. Then it returns a row
    for each value that they name: None, its digest and its data.

    Its parameters are those of `where`, the largest number of checkpoints, digests to leave out as a JSON array, and,
    if `some`, the channels as a JSON array, three times.

    Args:
        where: The condition for the checkpoints.
        some: Whether to read only some channels.
    """
    of_write = " AND w.channel IN (SELECT json_array_elements_text(%s::json))" if some else ""
    of_state = " WHERE key IN (SELECT json_array_elements_text(%s::json))" if some else ""
    write = "json_build_array(w.task_id, w.channel, w.digest, w.value)"
    return f"""
WITH page AS MATERIALIZED (
    SELECT c.*, row_number() OVER ({ORDER}) AS place FROM thread_checkpoints AS c WHERE {where} {ORDER} LIMIT %s),
known AS MATERIALIZED (SELECT json_array_elements_text(%s::json) AS digest),
named AS MATERIALIZED (
    SELECT s.value AS digest FROM page AS c, jsonb_each_text(c.state) AS s{of_state}
    UNION SELECT w.digest FROM page AS c JOIN thread_writes AS w ON {_OF_ROW} WHERE w.digest IS NOT NULL{of_write})
SELECT c.place, (to_jsonb(c) - 'place')::text,
    (SELECT json_agg({write} ORDER BY w.path, w.task_id, w.number)::text FROM thread_writes AS w
        WHERE {_OF_ROW}{of_write})
FROM page AS c
UNION ALL SELECT NULL, v.digest, v.data FROM named AS n JOIN "values" AS v ON v.digest = n.digest
WHERE NOT EXISTS (SELECT FROM known AS k WHERE k.digest = v.digest)
"""


Scalar = str | int | float | bool | None

PAGE = 100
_MOST_CONNECTIONS = 16  # at a time, and kept for the next statements

_in_order = itemgetter(*WRITE)

_Condition = tuple[Any, ...]  # a text of SQL with {} for each value that follows


class Written(NamedTuple):
    """A write as it is read: its value is in the table of values under a digest, or in the row."""

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
        stored_digests: Collection[str] = (),
    ) -> bool:
        """Store a checkpoint, writes or both in one transaction that is committed when this returns.

        An existing checkpoint is replaced; of existing writes only those with a negative number are.

        Args:
            checkpoint: The checkpoint.
            writes: The writes.
            new: The values that they name, by digest.
            stored_digests: Digests of values that were stored before and are not passed again.

        Returns:
            False if one of the stored values is missing by now; nothing was stored then.
        """
        columns = self._columns_of(checkpoint) if checkpoint else ()
        written: list[_StoredWrite] = [{**row, "session_id": self.session_id} for row in writes]
        try:
            if self.database.is_sqlite:
                is_gone, is_mine = self._put_sqlite(columns, written, dict(new), stored_digests)
            else:
                is_gone, is_mine = self._put_postgresql(columns, written, new, stored_digests)
        except psycopg.errors.ForeignKeyViolation:
            is_gone, is_mine = False, False
        if not is_mine:
            raise InputError("the session was deleted meanwhile; `wtb admin session list` shows all")
        return not is_gone

    def _columns_of(self, checkpoint: ThreadCheckpoint) -> Sequence[object]:
        """Return the values of a checkpoint's columns, as statements take them."""
        row = {**checkpoint, "session_id": self.session_id}
        return [_dumps(row[name]) if name in JSON else row[name] for name in CHECKPOINT]

    def _put_postgresql(
        self,
        columns: Sequence[object],
        written: Sequence[_StoredWrite],
        new: Mapping[str, bytes],
        stored_digests: Collection[str],
    ) -> tuple[bool, bool]:
        keys = sorted(new)  # in one order for all, so that no two statements wait for each other in a circle
        if len(keys) > MOST_APART:
            parameters: list[object] = [_dumps({key: new[key].decode() for key in keys})]
        else:
            parameters = [part for key in keys for part in (key, new[key].decode())]
        parameters += [_dumps(list(stored_digests))] if stored_digests else []
        parameters += columns
        parameters += [_dumps(written)] if written else []
        statement = put_statement(min(len(keys), MOST_APART + 1), bool(stored_digests), bool(columns), bool(written))
        ((is_gone, is_mine),) = self._execute(statement, [*parameters, self.session_id])
        return is_gone, is_mine

    def _put_sqlite(
        self,
        columns: Sequence[object],
        written: Sequence[_StoredWrite],
        new: dict[str, bytes],
        stored_digests: Collection[str],
    ) -> tuple[bool, bool]:
        with self.database.write() as connection:
            if not connection.scalar(sa.select(sa.exists().where(sessions.c.id == self.session_id))):
                return False, False
            if stored_digests:
                query = 'SELECT count(*) FROM "values" WHERE digest IN (SELECT value FROM json_each(?))'
                if connection.exec_driver_sql(query, (_dumps(list(stored_digests)),)).scalar() != len(stored_digests):
                    return True, True
            if new:
                insert_values(connection, sorted(new.items()))
            if columns:
                connection.exec_driver_sql(PUT_CHECKPOINT_SQLITE, tuple(columns))
            if written:
                connection.exec_driver_sql(PUT_WRITE_SQLITE, list(map(_in_order, written)))
        return False, True

    def _execute(self, query: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement that may be repeated, on a connection that is kept for the next one."""
        with self.database.reached(), self._room:
            while True:
                was_idle = bool(self._idle)
                try:
                    connection = self._idle.pop() if was_idle else self.database.detached()
                except IndexError:  # another thread has taken it
                    continue
                try:
                    rows: list[tuple[Any, ...]] = connection.execute(query, parameters, prepare=True).fetchall()
                except psycopg.Error as error:
                    lost = connection.closed
                    connection.close()
                    if lost and was_idle:  # the server ended it while it was idle
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
        """Yield checkpoints, the newest first, read in pages.

        Args:
            thread_id: Only of this thread.
            namespace: Only of this namespace.
            id: Only this checkpoint.
            ids: Only these checkpoints.
            before: Only checkpoints older than this one.
            matching: Texts, numbers, bools or None that their metadata must hold, compared by value.
            channels: The channels whose values and writes are read, by default all.
            limit: The largest number of checkpoints.
        """
        conditions: list[_Condition] = [("c.session_id = {}", self.session_id)]
        filters = (("thread_id", thread_id), ("namespace", namespace), ("id", id))
        conditions += [(f"c.{name} = {{}}", operand) for name, operand in filters if operand is not None]
        if ids is not None:
            each = "value FROM json_each" if self.database.is_sqlite else "json_array_elements_text"
            conditions.append((f"c.id IN (SELECT {each}({{}}))", _dumps(list(ids))))
        if before is not None:
            conditions.append(("c.id < {}", before))
        if matching and self.database.is_sqlite:
            conditions += [_same(key, operand) for key, operand in matching.items()]
        elif matching:
            conditions.append(("c.metadata @> {}::jsonb", _dumps(dict(matching))))
        last: list[_Condition] = []
        remaining = limit
        values: dict[str, Value] = {}  # of the last page: most of those of the next one are among them
        while remaining is None or remaining > 0:
            size = PAGE if remaining is None else min(remaining, PAGE)
            page = self._page([*conditions, *last], channels, size, values)
            yield from page
            if len(page) < size:
                return
            end = page[-1].row
            place = _dumps([end["id"], end["thread_id"], end["namespace"]])
            remaining = None if remaining is None else remaining - size
            last = [(AFTER_SQLITE if self.database.is_sqlite else AFTER, place)]

    def _page(
        self, conditions: Sequence[_Condition], channels: Collection[str] | None, size: int, values: dict[str, Value]
    ) -> list[Found]:
        """Read a page. `values` has values that need not be read, and afterwards those that the page names."""
        mark = "?" if self.database.is_sqlite else "%s"
        where = " AND ".join(text.replace("{}", mark) for text, *_ in conditions)
        parameters = (*(parameter for _, *values in conditions for parameter in values), size)
        if self.database.is_sqlite:
            with self.database.read() as connection:
                query = f"SELECT c.* FROM thread_checkpoints AS c WHERE {where} {ORDER} LIMIT ?"
                rows = connection.exec_driver_sql(query, parameters).mappings().all()
                checkpoints = [self._with_writes(connection, row, channels) for row in rows]
                named = {key for each in checkpoints for key in _named(*each, channels)}
                new = values_seen(self.database, connection, named - values.keys())
        else:
            names = () if channels is None else (_dumps(list(channels)),) * 3
            fetched = self._execute(seen(where, channels is not None), (*parameters, _dumps(list(values)), *names))
            those = sorted((place, row, writes) for place, row, writes in fetched if place is not None)
            checkpoints = [(orjson.loads(row), _written(writes)) for _, row, writes in those]
            named = {key for each in checkpoints for key in _named(*each, channels)}
            stored = {key: content for place, key, content in fetched if place is None}
            new = verified(stored, sorted(named - values.keys()))
        for key in values.keys() - named:
            del values[key]
        values |= new
        page_values = dict(values)
        return [Found(row, written, page_values) for row, written in checkpoints]

    def _with_writes(
        self, connection: sa.Connection, row: sa.RowMapping, channels: Collection[str] | None
    ) -> tuple[ThreadCheckpoint, list[Written]]:
        checkpoint: ThreadCheckpoint = {  # type: ignore[assignment]  # the columns of its type
            name: orjson.loads(row[name]) if name in JSON else row[name] for name in ThreadCheckpoint.__annotations__
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
        """Yield the checkpoints that lead to one, its parent first, with the values and writes of channels."""
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
            by_id = {each.row["id"]: each for each in these}
            yield from (by_id[id] for id in ids if id in by_id)
            if len(ids) < PAGE:
                return
            id = ids[-1]


def _close(connections: deque[psycopg.Connection[Any]]) -> None:
    while connections:
        connections.pop().close()


def _written(writes: str | None) -> list[Written]:
    return [Written(*each) for each in (orjson.loads(writes) if writes else [])]


def _named(checkpoint: ThreadCheckpoint, written: Sequence[Written], channels: Collection[str] | None) -> set[str]:
    """Return the digests that a checkpoint and its writes name; its state is reduced to the requested channels."""
    if channels is not None:
        checkpoint["state"] = {channel: key for channel, key in checkpoint["state"].items() if channel in channels}
    return {*checkpoint["state"].values(), *(each.digest for each in written if each.digest)}


def _same(key: str, operand: Scalar) -> _Condition:
    """Return SQLite's condition for a scalar by value: its own comparison would find 1 in true."""
    metadata_entry = "EXISTS (SELECT 1 FROM json_each(c.metadata) AS m WHERE m.key = {} AND m.type "
    if operand is None or isinstance(operand, bool):
        return f"{metadata_entry} = {{}})", key, _dumps(operand)
    kinds = "('text')" if isinstance(operand, str) else "('integer', 'real')"
    return f"{metadata_entry} IN {kinds} AND m.value = {{}})", key, operand


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
