"""The statements by which threads are stored and found, as texts.

What is stored together is one statement on PostgreSQL, so that it costs one round trip and one commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from wtb.store.tables.schema import thread_checkpoints, thread_writes

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


_AGAIN = " WHERE excluded.number < 0"  # all other writes stay as they were stored first
PUT_CHECKPOINT_SQLITE = _upsert(
    "thread_checkpoints", CHECKPOINT_KEY, _CHECKPOINT_REST, f"VALUES ({', '.join('?' * len(CHECKPOINT))})"
)
PUT_WRITE_SQLITE = _upsert("thread_writes", _WRITE_KEY, _WRITE_REST, f"VALUES ({', '.join('?' * len(WRITE))})", _AGAIN)


@cache
def put_statement(new: int, known: bool, checkpoint: bool, written: bool) -> str:
    """Of the parts that there are. new: how many values; known: whether any must be there.

    Parameters: values, the digests that must be there, the checkpoint's columns, writes, the session. Its row: whether
    a value that must be there has gone, and whether the session is there.
    """
    parts = []
    # The statement locks the table of values before it looks at it. So who removes values that nobody names waits for
    # it, and it sees what those who came before have removed; also where no value is new, since it might write one.
    if new > MOST_APART:
        source = "SELECT key, value FROM json_each_text(%s::json)"
    else:
        source = f"VALUES {', '.join(['(%s::text, %s::text)'] * new)}" if new else "SELECT NULL, NULL WHERE false"
    if new or known:
        parts.append(f'new AS (INSERT INTO "values" (digest, data) {source} ON CONFLICT DO NOTHING)')
    if known:
        absent = 'NOT EXISTS (SELECT FROM "values" AS v WHERE v.digest = k.key)'
        parts.append(f"gone AS (SELECT key FROM json_array_elements_text(%s::json) AS k(key) WHERE {absent})")
    only = "NOT EXISTS (SELECT FROM gone)" if known else "true"
    if checkpoint:
        columns = ", ".join(f"%s::{'jsonb' if name in JSON else 'text'}" for name in CHECKPOINT)
        row = _upsert("thread_checkpoints", CHECKPOINT_KEY, _CHECKPOINT_REST, f"SELECT {columns} WHERE {only}")
        parts.append(f"made AS ({row})")
    if written:
        given = f"SELECT {', '.join(WRITE)} FROM json_populate_recordset(NULL::thread_writes, %s::json) AS w"
        mine = "EXISTS (SELECT FROM sessions AS s WHERE s.id = w.session_id)"
        rows = _upsert("thread_writes", _WRITE_KEY, _WRITE_REST, f"{given} WHERE {only} AND {mine}", _AGAIN)
        parts.append(f"written AS ({rows})")
    gone = "EXISTS (SELECT FROM gone)" if known else "false"
    return f"WITH {', '.join(parts)} SELECT {gone}, EXISTS (SELECT FROM sessions WHERE id = %s)"


_HERE = (
    "w.session_id = c.session_id AND w.thread_id = c.thread_id AND w.namespace = c.namespace AND w.checkpoint_id = c.id"
)
ORDER = "ORDER BY c.id DESC, c.thread_id DESC, c.namespace DESC"
AFTER = "(c.id, c.thread_id, c.namespace) < (SELECT j ->> 0, j ->> 1, j ->> 2 FROM (SELECT {}::json AS j) AS place)"
AFTER_SQLITE = AFTER.replace("{}::json", "{}")


@cache
def seen(where: str, some: bool) -> str:
    """Checkpoints with all that is theirs: one round trip, and one state of the database.

    A row for each checkpoint: its place among them, the row and its writes, as JSON. Then one for each value that they
    name, however often: None, its digest and its data. where: which checkpoints. some: only the channels that the
    parameters name.

    Parameters: those of `where`, the most that are wanted, digests that are not wanted as a JSON array, and for some
    channels these as a JSON array, three times.
    """
    of_write = " AND w.channel IN (SELECT json_array_elements_text(%s::json))" if some else ""
    of_state = " WHERE key IN (SELECT json_array_elements_text(%s::json))" if some else ""
    entry = "json_build_array(w.task_id, w.channel, w.digest, w.value)"
    return f"""
WITH page AS MATERIALIZED (
    SELECT c.*, row_number() OVER ({ORDER}) AS place FROM thread_checkpoints AS c WHERE {where} {ORDER} LIMIT %s),
known AS MATERIALIZED (SELECT json_array_elements_text(%s::json) AS digest),
named AS MATERIALIZED (
    SELECT s.value AS digest FROM page AS c, jsonb_each_text(c.state) AS s{of_state}
    UNION SELECT w.digest FROM page AS c JOIN thread_writes AS w ON {_HERE} WHERE w.digest IS NOT NULL{of_write})
SELECT c.place, (to_jsonb(c) - 'place')::text,
    (SELECT json_agg({entry} ORDER BY w.path, w.task_id, w.number)::text FROM thread_writes AS w
        WHERE {_HERE}{of_write})
FROM page AS c
UNION ALL SELECT NULL, v.digest, v.data FROM named AS n JOIN "values" AS v ON v.digest = n.digest
WHERE NOT EXISTS (SELECT FROM known AS k WHERE k.digest = v.digest)
"""
