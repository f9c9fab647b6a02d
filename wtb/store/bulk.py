"""Many rows in one call, and several calls in one round trip.

PostgreSQL gets rows as one JSON document a statement, which spares the client almost all of its work (0.5 instead of 44
microseconds a row). SQLite, which has no round trips, gets plain tuples.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import orjson
import sqlalchemy as sa

from wtb.store.tables.column_types import is_json
from wtb.store.tables.schema import now, values

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert

T = TypeVar("T")
Row: TypeAlias = dict[str, Any]
"""A row of any table by column, where code copies tables that it does not know; others read records of their table."""
NewRow: TypeAlias = Mapping[str, Any]
"""A row to be written, by column: what the types of the columns of its table take."""
MOST_ROWS = 5_000
MOST_BYTES = 16 << 20
BATCH_ROWS = 1_000  # of a stream that is copied
SQLITE_ROWS = (
    64  # in a statement: the driver releases the interpreter for each statement, and larger ones take longer to parse
)


def fetch_rows(connection: sa.Connection, query: sa.Executable) -> list[Row]:
    """Execute a query within a transaction.

    Args:
        connection: In a transaction.
        query: The query.

    Returns:
        The rows by the names of their columns.
    """
    return _by_name(connection.execute(query))


def fetch_row(connection: sa.Connection, query: sa.Executable) -> Row | None:
    """Execute a query within a transaction and return its first row as `fetch_rows` does, or None if it has none."""
    return next(iter(_by_name(connection.execute(query), size=1)), None)


def fetch_records(connection: sa.Connection, kind: type[T], query: sa.Executable) -> list[T]:
    """Execute a query within a transaction.

    Args:
        connection: In a transaction.
        kind: A record type whose fields are the columns of the query, in their order.
        query: The query.

    Returns:
        A record for each row.
    """
    return [kind(*row) for row in connection.execute(query)]


def fetch_record(connection: sa.Connection, kind: type[T], query: sa.Executable) -> T | None:
    """Execute a query within a transaction and return its first row as `fetch_records` does, or None."""
    row = connection.execute(query).first()
    return None if row is None else kind(*row)


def fetch_among(
    connection: sa.Connection, query: sa.Select[*tuple[Any, ...]], column: sa.ColumnElement[Any], keys: Iterable[Any]
) -> Iterator[sa.Row[*tuple[Any, ...]]]:
    """Execute a query for the rows whose `column` has one of many values, in parts that respect the limit of
    parameters.
    """
    for part in parts(sorted(set(keys))):
        yield from connection.execute(query.where(column.in_(part)))


def among(column: sa.ColumnElement[Any], texts: Iterable[str], *, on_sqlite: bool) -> sa.ColumnElement[bool]:
    """Return the condition that a column has one of any number of texts, which travel as one parameter."""
    each = "value FROM json_each(:texts)" if on_sqlite else "json_array_elements_text(CAST(:texts AS json))"
    query = sa.text(f"SELECT {each}").bindparams(texts=orjson.dumps(list(texts)).decode())
    return column.in_(query.columns(sa.column("one", sa.Text)))


def equal(values_by_column: Mapping[sa.ColumnElement[Any], str | int | float | None]) -> list[sa.ColumnElement[bool]]:
    """Return conditions that columns have these values; one whose value is None is left out."""
    return [column == operand for column, operand in values_by_column.items() if operand is not None]


def parts(sequence: Sequence[T], size: int = MOST_ROWS) -> Iterator[Sequence[T]]:
    """Split into parts of at most `size`."""
    return (sequence[start : start + size] for start in range(0, len(sequence), size))


def in_batches(rows: Iterable[sa.Row[Any]]) -> Iterator[Sequence[sa.Row[Any]]]:
    """Split rows into parts that fit into memory."""
    part: list[sa.Row[Any]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += sum(sys.getsizeof(field) for field in row)
        if len(part) == BATCH_ROWS or size > MOST_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _by_name(cursor: sa.CursorResult[Any], size: int | None = None) -> list[Row]:
    names = list(map(str, cursor.keys()))  # SQLAlchemy's own kind of str is one that JSON writers refuse
    rows = cursor.all() if size is None else cursor.fetchmany(size)
    return [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def together(connection: sa.Connection) -> Iterator[None]:
    """Send the statements of the block without waiting for each answer; the end waits, and raises the first error."""
    if connection.dialect.name == "sqlite":
        yield
        return
    # No pipeline of SQLAlchemy's: statements inside must go through the driver, whose results nobody reads here.
    with connection.connection.driver_connection.pipeline():  # type: ignore[union-attr]  # psycopg's connection
        yield


def insert_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[NewRow]) -> None:
    """Insert rows, all of the same columns; those left out have their default."""
    _insert(connection, table, rows, "")


def insert_missing(connection: sa.Connection, table: sa.Table, rows: Sequence[NewRow]) -> None:
    """Insert rows; rows whose key exists stay as they are."""
    _insert(connection, table, rows, " ON CONFLICT DO NOTHING")


def insert_of(connection: sa.Connection, table: sa.Table) -> Insert:
    """Return an INSERT with an ON CONFLICT clause, which is a class of its own in each dialect."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    return insert(table)


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[NewRow], end: str) -> None:
    """Insert rows in as few statements as possible. end: the end of each statement, such as RETURNING."""
    on_sqlite = connection.dialect.name == "sqlite"
    for part in parts(rows, SQLITE_ROWS if on_sqlite else MOST_ROWS):
        names = tuple(part[0])
        into = f"INSERT INTO {_quoted(table.name)} ({_listed(names)})"
        if on_sqlite:
            row = f"({', '.join('?' * len(names))})"
            marks = ", ".join([row] * len(part))
            parameters = tuple(chain.from_iterable(_tuples(table, names, part)))
            connection.exec_driver_sql(f"{into} VALUES {marks}{end}", parameters)
        else:
            _send(connection, f"{into} {_select(table.name, names)}{end}", part)


def _tuples(table: sa.Table, names: Sequence[str], rows: Sequence[NewRow]) -> list[tuple[Any, ...]]:
    json = {name for name in names if is_json(table.c[name].type)}
    return [
        tuple([_dumps(row[name]) if name in json and row[name] is not None else row[name] for name in names])
        for row in rows
    ]


def insert_values(connection: sa.Connection, contents: Iterable[tuple[str, bytes]]) -> None:
    """Store values that are not stored yet.

    Args:
        connection: In a transaction that writes.
        contents: (digest, data) in the order of the digests: one order for all, so that two transactions never wait for
            each other in a circle. They are read as they are written, in parts that fit into memory.
    """
    rows: list[dict[str, str]] = []
    size = 0
    for digest, content in contents:
        size += len(content)
        if size > MOST_BYTES and rows:
            insert_missing(connection, values, rows)
            rows, size = [], len(content)
        rows.append({"digest": digest, "data": content.decode()})
    insert_missing(connection, values, rows)


def update_rows(
    connection: sa.Connection,
    table: sa.Table,
    rows: Sequence[NewRow],
    key: Sequence[str],
    *,
    only: Mapping[str, Sequence[str]] | None = None,
    stamp: str | None = None,
) -> None:
    """Update rows, all of the same columns, by `key`.

    Args:
        connection: In a transaction that writes.
        table: The table.
        rows: The rows, each with its key and the columns to change.
        key: The columns of the key.
        only: The values, by column, under which a row may change.
        stamp: A column that gets the database's time.
    """
    name = _quoted(table.name)
    may = "".join(
        f" AND {name}.{_quoted(column)} IN ({', '.join(repr(allowed_value) for allowed_value in allowed)})"
        for column, allowed in (only or {}).items()
    )
    for part in parts(rows):
        changed = [column for column in part[0] if column not in key]
        last = [f"{_quoted(stamp)} = {now().compile(dialect=connection.dialect)}"] if stamp else []
        if connection.dialect.name == "sqlite":
            sets = ", ".join([f"{_quoted(column)} = ?" for column in changed] + last)
            same = " AND ".join(f"{_quoted(column)} = ?" for column in key)
            query = f"UPDATE {name} SET {sets} WHERE {same}{may}"
            connection.exec_driver_sql(query, _tuples(table, [*changed, *key], part))
        else:
            sets = ", ".join([f"{_quoted(column)} = new.{_quoted(column)}" for column in changed] + last)
            same = " AND ".join(f"{name}.{_quoted(column)} = new.{_quoted(column)}" for column in key)
            # PostgreSQL expects 100 rows of a document, whatever it holds, and reads whole tables for so many.
            source = f"{_select(table.name, tuple(part[0]))} LIMIT {len(part)}"
            _send(connection, f"UPDATE {name} SET {sets} FROM ({source}) AS new WHERE {same}{may}", part)


def _send(connection: sa.Connection, query: str, rows: Sequence[NewRow]) -> None:
    """Execute a statement that takes rows as one document, on the driver, because SQLAlchemy waits for the answer."""
    connection.connection.driver_connection.execute(query, (_dumps(rows),))  # type: ignore[union-attr]


def _quoted(name: str) -> str:
    return f'"{name}"'


def _dumps(value: Any) -> str:
    return orjson.dumps(value, default=_as_text, option=orjson.OPT_NON_STR_KEYS).decode()


def _as_text(value: Any) -> str:
    """Return bytes as PostgreSQL reads them from text."""
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    raise TypeError(f"{type(value).__name__} is no value of a column")


@cache  # the same few sets of columns are written repeatedly
def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))


@cache
def _select(table: str, names: tuple[str, ...]) -> str:
    """Return a SELECT of these columns from the document, with the types that they have in the table."""
    return f"SELECT {_listed(names)} FROM json_populate_recordset(NULL::{_quoted(table)}, %s::json)"
