"""How much is stored."""

from __future__ import annotations

from typing import Any, TypedDict

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from wtb.store.attempt_columns import attempt_column, node_runs_with_attempts
from wtb.store.database import Database
from wtb.store.tables.schema import files, metadata, sessions, values


class octets(FunctionElement[int]):
    """The bytes of a text, 0 where it is NULL."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(octets, "postgresql")
def _octets_postgresql(element: octets, compiler: Any, **kw: Any) -> str:
    return f"coalesce(octet_length({compiler.process(element.clauses, **kw)}), 0)"


@compiles(octets, "sqlite")  # octet_length came with 3.43
def _octets_sqlite(element: octets, compiler: Any, **kw: Any) -> str:
    return f"coalesce(length(CAST({compiler.process(element.clauses, **kw)} AS BLOB)), 0)"


def total(size: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    """The sum of sizes, 0 where there are none."""
    return sa.cast(sa.func.coalesce(sa.func.sum(size), 0), sa.BigInteger)


_stdout, _stderr = attempt_column("stdout"), attempt_column("stderr")
output_size: sa.ColumnElement[int] = octets(_stdout) + octets(_stderr)
"""The bytes of what an attempt printed, for a query of `node_runs_with_attempts`."""
has_output = sa.or_(_stdout.is_not(None), _stderr.is_not(None))


def size(database: Database) -> dict[str, int]:
    """Bytes of the database, and rows of its main tables."""
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
    """How much is stored: (count, bytes) of values and outputs; of files by the name of each session."""

    values: tuple[int, int]
    outputs: tuple[int, int]
    files: dict[str, tuple[int, int]]


def stored_amounts(database: Database) -> StoredAmounts:
    """How much is stored in a database, and noted in it of files."""
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
