"""Threads: storing the checkpoints and writes of another engine, and finding them again.

What is stored together is one statement on PostgreSQL, so that it costs one round trip and one commit.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import psycopg
import sqlalchemy as sa

from wtb.engine import Value
from wtb.errors import InputError
from wtb.store.bulk import insert_values
from wtb.store.database import Database
from wtb.store.reading import values_seen, verified
from wtb.store.schema import thread_checkpoints, thread_writes

Row = dict[str, Any]
PAGE = 100
_MOST_IDLE = 16  # connections that are kept for the next statement

_KEY = tuple(column.name for column in thread_checkpoints.primary_key)
_REST = tuple(column.name for column in thread_checkpoints.c if column.name not in (*_KEY, "created_at"))
_WRITE_KEY = tuple(column.name for column in thread_writes.primary_key)
_WRITE_REST = tuple(column.name for column in thread_writes.c if column.name not in _WRITE_KEY)


def _upsert(table: str, key: Sequence[str], rest: Sequence[str], source: str, only: str = "") -> str:
    columns = ", ".join((*key, *rest))
    sets = ", ".join(f"{name} = excluded.{name}" for name in rest)
    return f"INSERT INTO {table} ({columns}) {source} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {sets}{only}"


def _given(table: str, names: Sequence[str]) -> str:
    rows = f"json_populate_recordset(NULL::{table}, %s::json)"
    return f"SELECT {', '.join(names)} FROM {rows} WHERE NOT EXISTS (SELECT FROM gone)"


_AGAIN = " WHERE excluded.number < 0"  # all other writes stay as they were stored first
# The statement locks its tables before it looks at them. So who removes values that nobody names waits for it, and it
# sees what those who came before have removed; also where no value is new, since it might write one.
_PUT = f"""
WITH new AS (
    INSERT INTO "values" (digest, data) SELECT key, value FROM json_each_text(%s::json) ON CONFLICT DO NOTHING
), gone AS (
    SELECT key FROM json_array_elements_text(%s::json) AS k(key)
    WHERE NOT EXISTS (SELECT FROM "values" AS v WHERE v.digest = k.key)
), made AS (
    {_upsert("thread_checkpoints", _KEY, _REST, _given("thread_checkpoints", (*_KEY, *_REST)))}
), written AS (
    {_upsert("thread_writes", _WRITE_KEY, _WRITE_REST, _given("thread_writes", (*_WRITE_KEY, *_WRITE_REST)), _AGAIN)}
)
SELECT EXISTS (SELECT FROM gone)
"""
_PUT_CHECKPOINT = _upsert("thread_checkpoints", _KEY, _REST, f"VALUES ({', '.join('?' * 9)})")
_PUT_WRITE = _upsert("thread_writes", _WRITE_KEY, _WRITE_REST, f"VALUES ({', '.join('?' * 10)})", _AGAIN)

_HERE = (
    "w.session_id = c.session_id AND w.thread_id = c.thread_id AND w.namespace = c.namespace AND w.checkpoint_id = c.id"
)
# All of a checkpoint at once: one round trip, and one state of the database.
_SEEN = f"""
SELECT row_to_json(c)::text,
    (SELECT json_agg(w ORDER BY w.path, w.task_id, w.number)::text FROM thread_writes AS w WHERE {_HERE}),
    (SELECT json_object_agg(v.digest, v.data)::text FROM "values" AS v WHERE v.digest IN (
        SELECT value FROM jsonb_each_text(c.state)
        UNION ALL SELECT w.digest FROM thread_writes AS w WHERE {_HERE} AND w.digest IS NOT NULL))
"""
_ORDER = "ORDER BY c.id DESC, c.thread_id DESC, c.namespace DESC"
_AFTER = "(c.id, c.thread_id, c.namespace) < (SELECT j ->> 0, j ->> 1, j ->> 2 FROM (SELECT {}::json AS j) AS place)"
_AFTER_SQLITE = _AFTER.replace("{}::json", "{}")

_Condition = tuple[Any, ...]  # a text of SQL with {} for each value that follows


@dataclass(frozen=True)
class Found:
    """A checkpoint as it is stored, the writes made from it, and the values that both name."""

    row: Row
    writes: Sequence[Row]
    values: Mapping[str, Value]


class Threads:
    """The threads of one session. Python's threads may share it; processes may not."""

    def __init__(self, database: Database, session_id: str) -> None:
        self.database = database
        self.session_id = session_id
        self._idle: deque[psycopg.Connection[Any]] = deque()
        weakref.finalize(self, _close, self._idle)

    def close(self) -> None:
        _close(self._idle)

    def put(
        self,
        checkpoint: Row | None,
        writes: Sequence[Row],
        new: Mapping[str, bytes],
        known: Collection[str] = (),
    ) -> bool:
        """Store a checkpoint, writes or both in one transaction that is committed when this returns.

        new: the values that they name, by digest. known: digests of those that were stored before and are not given
        again. Returns False, and has stored nothing, where one of those has gone meanwhile. A checkpoint that is there
        is replaced; of writes that are there only those with a negative number are.
        """
        made = [{"session_id": self.session_id, **row} for row in ([checkpoint] if checkpoint else [])]
        written = [{"session_id": self.session_id, **row} for row in writes]
        try:
            if self.database.is_sqlite:
                return self._put_sqlite(made, written, dict(new), known)
            values = {key: new[key].decode() for key in sorted(new)}  # in one order for all
            ((gone,),) = self._execute(_PUT, [_dumps(part) for part in (values, list(known), made, written)])
        except (psycopg.errors.ForeignKeyViolation, sa.exc.IntegrityError):
            raise InputError("the session was deleted meanwhile; `wtb session list` shows all") from None
        return not gone

    def _put_sqlite(
        self, made: Sequence[Row], written: Sequence[Row], new: dict[str, bytes], known: Collection[str]
    ) -> bool:
        with self.database.write() as connection:
            if known:
                marks = ", ".join("?" * len(known))
                query = f'SELECT count(*) FROM "values" WHERE digest IN ({marks})'
                if connection.exec_driver_sql(query, tuple(known)).scalar() != len(known):
                    return False
            if new:
                insert_values(connection, new)
            for row in made:
                plain = {**row, "state": _dumps(row["state"]), "metadata": _dumps(row["metadata"])}
                connection.exec_driver_sql(_PUT_CHECKPOINT, tuple(plain[name] for name in (*_KEY, *_REST)))
            if written:
                rows = [tuple(row[name] for name in (*_WRITE_KEY, *_WRITE_REST)) for row in written]
                connection.exec_driver_sql(_PUT_WRITE, rows)
        return True

    def _execute(self, query: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement that may be executed twice, on a connection that waits for the next one afterwards."""
        with self.database.reached():
            while True:
                kept = bool(self._idle)
                try:
                    connection = self._idle.pop() if kept else self.database.detached()
                except IndexError:  # another thread took it
                    continue
                try:
                    rows: list[tuple[Any, ...]] = connection.execute(query, parameters, prepare=True).fetchall()
                except psycopg.Error:
                    lost = connection.closed
                    connection.close()
                    if lost and kept:  # the server has ended it since
                        continue
                    raise
                if len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()
                return rows

    def find(
        self,
        *,
        thread_id: str | None = None,
        namespace: str | None = None,
        id: str | None = None,
        ids: Collection[str] | None = None,
        before: str | None = None,
        matching: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> Iterator[Found]:
        """Checkpoints, the newest first, read in pages. matching: what their metadata must hold."""
        wanted: list[_Condition] = [("c.session_id = {}", self.session_id)]
        given = (("thread_id", thread_id), ("namespace", namespace), ("id", id))
        wanted += [(f"c.{name} = {{}}", value) for name, value in given if value is not None]
        if ids is not None:
            each = "value FROM json_each" if self.database.is_sqlite else "json_array_elements_text"
            wanted.append((f"c.id IN (SELECT {each}({{}}))", _dumps(list(ids))))
        if before is not None:
            wanted.append(("c.id < {}", before))
        if matching and self.database.is_sqlite:
            same = "c.metadata -> {} = json({})"
            wanted += [(same, f'$."{key}"', _dumps(value)) for key, value in matching.items()]
        elif matching:
            wanted.append(("c.metadata @> {}::jsonb", _dumps(dict(matching))))
        last: list[_Condition] = []
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(left, PAGE)
            page = self._page([*wanted, *last], size)
            yield from page
            if len(page) < size:
                return
            end = page[-1].row
            place = _dumps([end["id"], end["thread_id"], end["namespace"]])
            left = None if left is None else left - size
            last = [(_AFTER_SQLITE if self.database.is_sqlite else _AFTER, place)]

    def _page(self, wanted: Sequence[_Condition], size: int) -> list[Found]:
        mark = "?" if self.database.is_sqlite else "%s"
        where = " AND ".join(text.replace("{}", mark) for text, *_ in wanted)
        given = (*(value for _, *values in wanted for value in values), size)
        end = f"FROM thread_checkpoints AS c WHERE {where} {_ORDER} LIMIT {mark}"
        if not self.database.is_sqlite:
            return [_found(*row) for row in self._execute(f"{_SEEN} {end}", given)]
        with self.database.read() as connection:
            rows = [dict(row) for row in connection.exec_driver_sql(f"SELECT c.* {end}", given).mappings()]
            return self._complete(connection, rows)

    def _complete(self, connection: sa.Connection, rows: Sequence[Row]) -> list[Found]:
        found = []
        for row in rows:
            row |= {name: orjson.loads(row[name]) for name in ("state", "metadata")}
            w = thread_writes.c
            place = {w.thread_id: "thread_id", w.namespace: "namespace", w.checkpoint_id: "id"}
            query = sa.select(thread_writes).where(
                w.session_id == self.session_id, *(column == row[name] for column, name in place.items())
            )
            written = [
                dict(each) for each in connection.execute(query.order_by(w.path, w.task_id, w.number)).mappings()
            ]
            named = {*row["state"].values(), *(each["digest"] for each in written if each["digest"])}
            found.append(Found(row, written, values_seen(self.database, connection, named)))
        return found

    def ancestors(self, thread_id: str, namespace: str, id: str) -> Iterator[Found]:
        """The checkpoints that lead to one, its parent first, with their writes."""
        c = thread_checkpoints.c
        mine = (c.session_id == self.session_id, c.thread_id == thread_id, c.namespace == namespace)
        while True:
            walk = sa.select(c.parent_id.label("id"), sa.literal(1).label("back")).where(*mine, c.id == id)
            line = walk.cte("line", recursive=True)
            further = sa.select(c.parent_id, line.c.back + 1).join(line, c.id == line.c.id)
            line = line.union_all(further.where(*mine, line.c.back < PAGE))
            query = sa.select(line.c.id).where(line.c.id.is_not(None)).order_by(line.c.back)
            with self.database.read() as connection:
                ids = list(connection.scalars(query))
            found = {each.row["id"]: each for each in self.find(thread_id=thread_id, namespace=namespace, ids=ids)}
            yield from (found[id] for id in ids if id in found)
            if len(ids) < PAGE:
                return
            id = ids[-1]


def _close(connections: deque[psycopg.Connection[Any]]) -> None:
    while connections:
        connections.pop().close()


def _found(row: str, writes: str | None, stored: str | None) -> Found:
    made: Row = orjson.loads(row)
    written: list[Row] = orjson.loads(writes) if writes else []
    named = {*made["state"].values(), *(each["digest"] for each in written if each["digest"])}
    return Found(made, written, verified(orjson.loads(stored) if stored else {}, sorted(named)))


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()
