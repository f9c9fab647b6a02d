"""Copies of a database before an upgrade, of whatever version, and their restoration.

A copy of SQLite is the file. A copy of PostgreSQL is an archive with the rows of each table in the server's own text
form. The migrations of this WTB create the tables of the version, so no program of the server is needed.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypedDict

import sqlalchemy as sa

from wtb.core.errors import InputError, StoreError
from wtb.core.version import __version__
from wtb.store.database import Database
from wtb.store.engine import read_only_uri

_HEAD: Final = "head.json"
_FORMAT: Final = "wtb version copy"
_CHUNK: Final = 1 << 20  # bytes


class _Wall(TypedDict):
    """A statement that creates a policy or grants a right, and the roles that it names."""

    roles: list[str]
    statement: str


class _Head(TypedDict):
    format: str
    revision: str
    wtb: str
    rows: dict[str, int]
    columns: dict[str, list[str]]
    walls: list[_Wall]


def keep_version(database: Database, folder: Path) -> Path | None:
    """Copy a database to a new file, whatever its version is.

    Args:
        database: The database.
        folder: The folder of the copy; created if it does not exist.

    Returns:
        The file; None if there is no database yet.

    Raises:
        StoreError: If the copy cannot be written.
    """
    revision = database.revision() if database.exists() else None
    if revision is None:
        return None
    suffix = ".db" if database.is_sqlite else ".zip"
    path = folder / f"{revision}-{time.strftime('%Y%m%d-%H%M%S')}{suffix}"
    # Written under another name first, so that a copy with its final name is complete.
    temporary = path.with_suffix(".new")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        with database.read(long=True) as connection:
            if database.is_sqlite:
                with closing(sqlite3.connect(temporary)) as target:
                    _driver(connection).backup(target)
                    # A copy in WAL mode would need files beside it.
                    target.execute("PRAGMA journal_mode=DELETE").close()
            else:
                _write_archive(connection, temporary, revision)
        os.rename(temporary, path)
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{path}: the backup before the upgrade cannot be written ({error})") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def restore_version(database: Database, path: Path) -> str:
    """Replace all contents of a database by a copy, with the tables of its version, in one transaction.

    Args:
        database: The database, of any version. Nothing else may use it meanwhile.
        path: A file that `keep_version` wrote from a database of the same kind.

    Returns:
        The version of the tables.

    Raises:
        InputError: If the file is no such copy.
        StoreError: If it is damaged, or the database is out of reach.
    """
    if database.is_sqlite:
        return _restore_file(database, path)
    with _archive(path) as (archive, head):
        database.rebuild(head["revision"], lambda connection: _load(connection, archive, head))
    return head["revision"]


def _restore_file(database: Database, path: Path) -> str:
    try:
        with closing(sqlite3.connect(read_only_uri(path), uri=True)) as source:
            intact = source.execute("PRAGMA quick_check(1)").fetchone()[0]
            (revision,) = source.execute("SELECT version_num FROM alembic_version").fetchone()
            if intact != "ok":
                raise StoreError(f"{path} is damaged: {intact}; use another backup")
            with database.read(long=True) as connection:
                # SQLite does not write a backup into a connection that is in a transaction.
                connection.rollback()
                source.backup(_driver(connection))
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise StoreError(
                f"database {database.shown_url} is in use; stop the processes that use it, then try again"
            ) from None
        raise InputError(f"{path} is no backup of an SQLite database: {error}") from None
    except (sqlite3.DatabaseError, TypeError) as error:
        raise InputError(f"{path} is no backup of an SQLite database: {error}") from None
    return str(revision)


def _driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


def _write_archive(connection: sa.Connection, path: Path, revision: str) -> None:
    tables = sa.MetaData()
    tables.reflect(connection)
    head: _Head = {"format": _FORMAT, "revision": revision, "wtb": __version__, "rows": {}, "columns": {}, "walls": []}
    quote = connection.dialect.identifier_preparer.quote
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for table in tables.sorted_tables:
            # PostgreSQL computes such columns itself and rejects values for them.
            columns = [column.name for column in table.columns if column.computed is None]
            names = ", ".join(map(quote, columns))
            with archive.open(table.name, "w", force_zip64=True) as out, _driver(connection).cursor() as cursor:
                with cursor.copy(f"COPY {quote(table.name)} ({names}) TO STDOUT") as copy:
                    for chunk in copy:
                        out.write(chunk)
                head["rows"][table.name] = cursor.rowcount
            head["columns"][table.name] = columns
        head["walls"] = _walls(connection)
        archive.writestr(_HEAD, json.dumps(head))


# The walls between roles: row-level security, its policies, and rights.
_WALLS: Final = """
SELECT ARRAY[]::text[] AS roles, format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', relname) AS statement
FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relrowsecurity
UNION ALL
SELECT roles::text[], format('CREATE POLICY %I ON %I AS %s FOR %s TO %s', policyname, tablename, permissive, cmd,
    (SELECT string_agg(CASE WHEN role = 'public' THEN 'PUBLIC' ELSE quote_ident(role) END, ', ')
     FROM unnest(roles::text[]) AS role))
    || coalesce(' USING (' || qual || ')', '') || coalesce(' WITH CHECK (' || with_check || ')', '')
FROM pg_policies WHERE schemaname = current_schema()
UNION ALL
SELECT ARRAY[grantee], format('GRANT %s ON %I TO %I', privilege_type, table_name, grantee)
FROM information_schema.role_table_grants
WHERE table_schema = current_schema() AND grantee NOT IN ('PUBLIC', current_user)
UNION ALL
SELECT DISTINCT ARRAY[grantee], format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO %I', table_schema, grantee)
FROM information_schema.role_table_grants
WHERE table_schema = current_schema() AND grantee NOT IN ('PUBLIC', current_user)
"""


def _walls(connection: sa.Connection) -> list[_Wall]:
    rows = connection.exec_driver_sql(_WALLS.replace("%", "%%"))
    return [{"roles": [*roles], "statement": statement} for roles, statement in rows]


@contextmanager
def _archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, _Head]]:
    try:
        with zipfile.ZipFile(path) as archive:
            head: _Head = json.loads(archive.read(_HEAD))
            if head["format"] != _FORMAT:
                raise KeyError(_FORMAT)
            if (damaged := archive.testzip()) is not None:
                raise StoreError(f"{path} is damaged: its part {damaged} has another content; use another backup")
            yield archive, head
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is no backup of a PostgreSQL database: {error}") from None


def _load(connection: sa.Connection, archive: zipfile.ZipFile, head: _Head) -> None:
    """Fill the tables, which were just created."""
    quote = connection.dialect.identifier_preparer.quote
    for name in head["columns"]:
        connection.exec_driver_sql(f"DELETE FROM {quote(name)}")  # rows that migrations inserted
        connection.exec_driver_sql(f"ALTER TABLE {quote(name)} DISABLE TRIGGER USER")  # rows were checked when new
    for name, columns in head["columns"].items():
        _load_table(connection, archive, name, columns, head["rows"][name])
    connection.exec_driver_sql("SET CONSTRAINTS ALL IMMEDIATE")
    roles = {"public", *connection.scalars(sa.text("SELECT rolname FROM pg_roles"))}
    # Another server may lack the roles of service accounts; policies for them would fail there.
    for wall in head["walls"]:
        if roles.issuperset(wall["roles"]):
            connection.exec_driver_sql(wall["statement"].replace("%", "%%"))
    for name, columns in head["columns"].items():
        connection.exec_driver_sql(f"ALTER TABLE {quote(name)} ENABLE TRIGGER USER")
        for column in columns:
            _continue_sequence(connection, name, column)


def _load_table(
    connection: sa.Connection, archive: zipfile.ZipFile, name: str, columns: Sequence[str], expected: int
) -> None:
    quote = connection.dialect.identifier_preparer.quote
    names = ", ".join(map(quote, columns))
    with archive.open(name) as rows, _driver(connection).cursor() as cursor:
        with cursor.copy(f"COPY {quote(name)} ({names}) FROM STDIN") as copy:
            while chunk := rows.read(_CHUNK):
                copy.write(chunk)
        if cursor.rowcount != expected:
            raise StoreError(f"table {name} got {cursor.rowcount:,} rows; expected {expected:,}")


def _continue_sequence(connection: sa.Connection, table: str, column: str) -> None:
    """Let a column that numbers its rows continue after the last one."""
    quote = connection.dialect.identifier_preparer.quote
    names = {"table": quote(table), "column": column}
    sequence = connection.scalar(sa.text("SELECT pg_get_serial_sequence(:table, :column)"), names)
    if sequence is not None:
        last = connection.scalar(sa.text(f"SELECT max({quote(column)}) FROM {quote(table)}"))
        values = {"sequence": sequence, "last": last or 1, "used": last is not None}
        connection.execute(sa.text("SELECT setval(:sequence, :last, :used)"), values)
