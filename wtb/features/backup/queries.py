"""Copies of a whole database as one SQLite file, and loading such a copy into an empty database.

A copy has one state of its database, even while sweeps run. Rows are copied and not dumped by a program of the server:
that needs no `pg_dump` of the server's version, works under row-level security, and a copy of either database can be
loaded into the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import orjson
import sqlalchemy as sa

from wtb.core.errors import ConflictError, InputError, StoreError
from wtb.core.ids import DEFAULT_PROJECT
from wtb.core.serialization.codec import digest
from wtb.core.status import OPEN_SWEEPS
from wtb.store.bulk import BATCH_ROWS, in_batches, insert_rows
from wtb.store.database import DEFAULT_SESSION, Database
from wtb.store.engine import read_only_uri
from wtb.store.housekeeping.stored_values import values_named
from wtb.store.log import continue_log, rebase_log
from wtb.store.runs.leases import releasing, try_move
from wtb.store.tables import schema

Report = Callable[[str], None]

RESTORED = "restored from a backup, which was made while it ran"
_PAGES = 5_000  # of SQLite in a step
# Rows of running processes, which a restored database does not have.
_OF_PROCESSES = (schema.permits, schema.reservations, schema.working, schema.runners)
# Rows that a new database has already.
_BORN_WITH = {
    schema.sessions: (schema.sessions.c.id, DEFAULT_SESSION),
    schema.projects: (schema.projects.c.name, DEFAULT_PROJECT),
}


def copy_database(database: Database, target: Path, report: Report) -> dict[str, int]:
    """Copy all tables to a new SQLite file.

    Args:
        database: The database, which others may read and write meanwhile.
        target: The path of the file, which does not exist yet.
        report: Called with messages about the progress.

    Returns:
        How many rows each table has.

    Raises:
        StoreError: If the database is out of reach, or the copy cannot be written.
    """
    try:
        with database.read(long=True) as source:
            if database.is_sqlite:
                _copy_pages(source, target, report)
            else:
                _copy_rows(source, target, report)
        with closing(sqlite3.connect(target)) as target_connection:
            # One file, which can be opened where nothing can be written beside it.
            target_connection.execute("PRAGMA journal_mode=DELETE").close()
    except sqlite3.Error as error:
        raise StoreError(f"{target}: the copy cannot be written ({error})") from error
    with reading_copy(target) as copy:
        return {
            table.name: copy.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            for table in schema.metadata.sorted_tables
        }


def _copy_pages(source: sa.Connection, target: Path, report: Report) -> None:
    """Copy SQLite to SQLite, page by page."""
    # A transaction that has read something stays at its state; otherwise each write of others would restart the copy.
    source.execute(sa.select(schema.sessions.c.id).limit(1)).all()

    def progress(status: int, remaining: int, total: int) -> None:
        report(f"database: {total - remaining:,} of {total:,} pages")

    driver: Any = source.connection.driver_connection
    with closing(sqlite3.connect(target)) as out:
        driver.backup(out, pages=_PAGES, progress=progress)


def _copy_rows(source: sa.Connection, target: Path, report: Report) -> None:
    target_database = Database(sa.URL.create("sqlite", database=str(target)).render_as_string())
    try:
        target_database.prepare()
        with target_database.write() as out:
            _clear(out)
            for table in schema.metadata.sorted_tables:
                _copy_table(source, out, table, report)
    finally:
        target_database.close()


@contextmanager
def reading_copy(path: Path) -> Iterator[sa.Connection]:
    """Open a copy for reading, without writing anything beside it. Raises StoreError if it is damaged."""
    uri = read_only_uri(path, is_unchanging=True)
    engine = sa.create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(uri, uri=True),
        poolclass=sa.NullPool,
        json_deserializer=orjson.loads,
        hide_parameters=True,
    )
    try:
        with engine.connect() as connection:
            yield connection
    except sa.exc.DatabaseError as error:
        raise StoreError(f"{path} is damaged or not a copy of a database: {error.orig}") from error
    finally:
        engine.dispose()


def check_empty(database: Database) -> None:
    """Check that a database has no data of users. Raises ConflictError that names the table that has."""
    with database.read() as connection:
        for table in schema.metadata.sorted_tables:
            rows = sa.select(sa.func.count()).select_from(table)
            if table in _BORN_WITH:
                column, name = _BORN_WITH[table]
                rows = rows.where(column != name)
            if count := connection.scalar(rows):
                raise ConflictError(
                    f"database {database.shown_url} is not empty: its table {table.name} has {count:,} rows; "
                    f"restore into a new database"
                )


def load_copy(database: Database, path: Path, report: Report, *, by: str) -> int:
    """Load a copy into an empty database, in one transaction. Executions that ran wait to be claimed or resumed.

    Args:
        database: A database with tables of the version of the copy.
        path: A file that `copy_database` wrote.
        report: Called with messages about the progress.
        by: The person who restores it, for the events of sweeps that are paused.

    Returns:
        The number of sweeps that have not ended.

    Raises:
        ConflictError: If the database is not empty.
        StoreError: If the copy is damaged, or the database out of reach or full.
    """
    check_empty(database)
    with reading_copy(path) as copy, database.write(long=True) as connection:
        _clear(connection)
        # Sorted by foreign keys, so that a row comes after the rows that it refers to.
        for table in schema.metadata.sorted_tables:
            if table not in _OF_PROCESSES:
                _copy_table(copy, connection, table, report)
        rebase_log(connection)
        continue_log(connection)
        _release(connection, by)
        # The time of creation identifies a database in the marks of file stores, and this is another database now.
        connection.execute(
            schema.sessions.update().where(schema.sessions.c.id == DEFAULT_SESSION).values(created_at=schema.now())
        )
        open_count = (
            sa.select(sa.func.count()).select_from(schema.sweeps).where(schema.sweeps.c.status.in_(OPEN_SWEEPS))
        )
        return connection.scalar(open_count) or 0


def _clear(connection: sa.Connection) -> None:
    for table in _BORN_WITH:
        connection.execute(table.delete())


def _release(connection: sa.Connection, by: str) -> None:
    """Release all executions. Sweeps that a process ran by itself are paused, because no worker continues them."""
    connection.execute(releasing().where(schema.executions.c.status == "running"))
    alone = sa.select(schema.sweeps.c.id).where(schema.sweeps.c.status == "running", ~schema.sweeps.c.queued)
    for sweep_id in connection.scalars(alone).all():
        try_move(connection, sweep_id, "paused", reason=RESTORED, by=by)


def _copy_table(source: sa.Connection, target: sa.Connection, table: sa.Table, report: Report) -> None:
    count = 0
    streamed = source.execution_options(yield_per=BATCH_ROWS).execute(sa.select(table))
    names = [column.name for column in table.columns]
    for rows in in_batches(streamed):
        insert_rows(target, table, [dict(zip(names, row, strict=True)) for row in rows])
        count += len(rows)
        report(f"{table.name}: {count:,} rows")


def missing_values(connection: sa.Connection) -> list[str]:
    """Return the digests that rows name and that no value has."""
    query = f'SELECT value FROM ({values_named(connection)}) AS r EXCEPT SELECT digest FROM "values"'
    return sorted(connection.scalars(sa.text(query)))


def damaged_values(connection: sa.Connection) -> list[str]:
    """Return the digests whose value has another hash."""
    stored = connection.execution_options(yield_per=100).execute(
        sa.select(schema.values.c.digest, schema.values.c.data)
    )
    return [key for key, content in stored if digest(content.encode()) != key]


def check_rows(connection: sa.Connection, expected: Mapping[str, int]) -> None:
    """Check the numbers of rows of the tables. Raises InputError that names the first table with another number."""
    for table in schema.metadata.sorted_tables:
        count = connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
        if count != expected.get(table.name, 0):
            raise InputError(f"table {table.name} has {count:,} rows; expected {expected.get(table.name, 0):,}")
