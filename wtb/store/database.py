"""A database with its tables: their existence and version, their creation and upgrade."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from wtb.core.errors import InputError, StoreError
from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.database_url import database_url
from wtb.store.log import is_of_another_server, rebase_log
from wtb.store.tables.schema import REVISION, metadata, projects, sessions, sweeps
from wtb.store.tables.walls import build_walls
from wtb.store.transactions import Transactions

DEFAULT_SESSION = "default"
MIGRATIONS = Path(__file__).parent / "migrations"
INITIAL = "2000"  # the oldest version that can be upgraded
TAG_OF_OLDER = "databases-before-0.1.0"
_LONGEST_PATH = 503  # in bytes: SQLite's own limit of 512, minus the suffixes of the files beside it

# The same text as Alembic's, because a test compares new databases with migrated ones.
_VERSION_TABLE = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
"""


class Database(Transactions):
    """An open database with the tables of WTB. Threads may share it; processes may not: open it after a fork."""

    def exists(self) -> bool:
        """Return whether the database exists, without creating it."""
        if self.path is not None:
            return self.path.exists()
        return self.revision() is not None

    def revision(self) -> str | None:
        """Return the migration at which the database is; None if it is empty."""
        with self.read() as connection:
            return _revision(connection)

    def prepare(self) -> None:
        """Create the tables of an empty database. Raises InputError if it has another version."""
        self._make_file()
        revision = self.revision()
        self._check_own()
        if revision is None:
            self._create()
        elif revision != REVISION:
            raise self._of_another_version(revision)
        self._rebase_log()

    def _check_own(self) -> None:
        """Raise InputError for an SQLite file of another program."""
        if not self.is_sqlite:
            return
        with self.read() as connection:
            tables = set(sa.inspect(connection).get_table_names())
        if tables and not {"alembic_version", sweeps.name} <= tables:
            raise InputError(
                f"database {self.shown_url} belongs to another program: it has the table {min(tables)!r}; expected a "
                f"WTB database, or a new file"
            )

    def _rebase_log(self) -> None:
        """Continue the log of a database that was restored from another server."""
        with self.read() as connection:
            if not is_of_another_server(connection):
                return
        with self.write(long=True) as connection:  # all its rows are rewritten
            self._lock_tables(connection)
            if is_of_another_server(connection):
                rebase_log(connection)

    def _make_file(self) -> None:
        """Create the file of an SQLite database, and its folder, for this user alone: states may hold secrets."""
        if self.path is None:
            return
        if (length := len(os.fsencode(self.path.absolute()))) > _LONGEST_PATH:
            raise StoreError(
                f"database {self.shown_url}: its path has {length:,} bytes, and SQLite opens none of more than "
                f"{_LONGEST_PATH}: keep it at a shorter path"
            )
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"database {self.shown_url}: its folder cannot be made ({error.strerror})") from error
        # Only a new file is opened: closing any descriptor of a file ends all POSIX locks that this process holds on
        # it, those of SQLite included, and the next process to leave the database would then delete its WAL.
        with suppress(OSError):  # SQLite has the better message; its -wal and -shm get the mode of the file
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _create(self) -> None:
        """Create all tables, unless another process just has."""
        with self.write(long=True) as connection:
            self._lock_tables(connection)  # two that start at once: the second waits and finds the tables
            if sa.inspect(connection).has_table("alembic_version"):
                return
            for statement in _table_statements(self.url.drivername):
                connection.exec_driver_sql(statement)
            connection.execute(sa.text(_VERSION_TABLE))
            connection.execute(sa.text("INSERT INTO alembic_version VALUES (:r)"), {"r": REVISION})
            build_walls(connection)
            connection.execute(projects.insert().values(name=DEFAULT_PROJECT, created_by="WTB"))
            connection.execute(sessions.insert().values(id=DEFAULT_SESSION, name=DEFAULT_SESSION))

    def _of_another_version(self, revision: str) -> InputError:
        return InputError(
            f"database {self.shown_url} is of version {revision}; this WTB expects {REVISION}: "
            f"{advice_on_version(revision)}"
        )

    def upgrade(self) -> tuple[str | None, str]:
        """Run the migrations; make the tables of an empty database.

        Returns:
            The version before, None for an empty database, and the version after.

        Raises:
            InputError: For a version that is unknown, or too old to be upgraded.
        """
        before = self.revision() if self.exists() else None
        if before is None:
            self.prepare()
            return None, REVISION
        self._check_own()
        with self.write(long=True) as connection:  # rows of a large database are rewritten in one statement
            self._lock_tables(connection)  # two that upgrade at once: the second waits and finds nothing to do
            if before < INITIAL or not self._migrate(connection, REVISION):
                raise self._of_another_version(before)
            build_walls(connection)
        return before, REVISION

    def rebuild(self, revision: str, fill: Callable[[sa.Connection], None]) -> None:
        """Replace all tables by those of another version, in one transaction. Not for SQLite.

        Args:
            revision: The version.
            fill: Called with the connection to fill the tables, which are empty.

        Raises:
            InputError: For a version that the migrations do not know.
        """
        with self.write(long=True) as connection:
            self._lock_tables(connection)
            _drop_tables(connection)
            if not self._migrate(connection, revision):
                raise InputError(f"version {revision} is unknown to this WTB: use the one that made the copy")
            fill(connection)

    def _migrate(self, connection: sa.Connection, revision: str) -> bool:
        """Run the migrations up to a version. Returns False if that version, or the database's own, is unknown."""
        # Alembic takes long to import, and only upgrades need it.
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, revision)
        except CommandError:
            return False
        return True

    def _lock_tables(self, connection: sa.Connection) -> None:
        """Let one transaction at a time create or migrate the tables. On SQLite every writing transaction is alone
        anyway.
        """
        if not self.is_sqlite:
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # others may take a while, each in its turn
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(9182736455)"))
            connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")


def open_database(location: str | Path | Database | None = None) -> Database:
    """Open the database of a location, as `database_url` resolves it; an open database is returned as it is."""
    return location if isinstance(location, Database) else Database(database_url(location))


def advice_on_version(revision: str) -> str:
    """Return the advice for a database of a version that this WTB does not use."""
    if revision < INITIAL:
        return (
            f"use a new database, and this one with the WTB of the tag {TAG_OF_OLDER}, whose `wtb doctor` and "
            "`wtb retry` work on it"
        )
    return (
        "use the newer WTB that made it"
        if revision > REVISION
        else "run `wtb admin db upgrade`, or use the WTB that made it"
    )


def check_shared(database: Database) -> None:
    """Raise InputError unless several machines can share a database."""
    if database.is_sqlite:
        raise InputError(
            f"workers need PostgreSQL, and the database is {database.shown_url}: name one, here or in "
            f"WTB_DATABASE_URL, or start a stack here with `wtb up`; without workers there is `wtb run`",
            argument="db",
        )


def _drop_tables(connection: sa.Connection) -> None:
    """Drop all tables of the schema, with the functions of their triggers."""
    functions = connection.scalars(
        sa.text(
            "SELECT DISTINCT tgfoid::regprocedure::text FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid "
            "WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace"
        )
    ).all()
    quote = connection.dialect.identifier_preparer.quote
    for table in sa.inspect(connection).get_table_names():
        connection.exec_driver_sql(f"DROP TABLE {quote(table)} CASCADE")
    for function in functions:
        connection.exec_driver_sql(f"DROP FUNCTION {function}")


def _revision(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return revision


@cache  # compiling them takes several times as long as executing them
def _table_statements(driver: str) -> tuple[str, ...]:
    """Return the statements that create all tables in databases of a driver."""
    statements: list[str] = []

    def keep(statement: Any, *_: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = sa.create_mock_engine(f"{driver}://", keep)
    metadata.create_all(engine, checkfirst=False)
    return tuple(statements)
