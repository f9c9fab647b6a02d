"""Opening a database: its engine, its version, its transactions."""

from __future__ import annotations

import copy
import os
import select
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.sql.selectable import TypedReturnsRows

from wtb.config.credentials import DATABASE_URL, credential, guard, is_hidden_database
from wtb.config.stack_file import find_stack
from wtb.config.urls import shown_url
from wtb.core.classes.frozen import frozen
from wtb.core.errors import InputError, StoreAway, StoreError, did_you_mean
from wtb.core.ids import DEFAULT_PROJECT
from wtb.store.bulk import Row, fetch_record, fetch_records, fetch_row, fetch_rows
from wtb.store.log import Announcer, Growth, adopt_log, is_of_another_server
from wtb.store.tables.schema import REVISION, metadata, now, projects, sessions, sweeps
from wtb.store.tables.walls import SERVER, build_walls, projects_setting

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_SESSION = "default"
QUERY_CANCELED = "57014"  # a statement took longer than it may
LOCK_NOT_AVAILABLE = "55P03"  # PostgreSQL gave up waiting for a row that another transaction has locked
DEFAULT_URL = "sqlite:///.wtb/wtb.db"
MIGRATIONS = Path(__file__).parent / "migrations"

# Compiling a statement takes PostgreSQL a second, where it takes its rows for many; none of ours gains that.
_SETTINGS = "-c statement_timeout=30s -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s -c jit=off"

_LONGEST_PATH = 503  # in bytes: SQLite's own limit of 512, less what it needs for the names of files beside it
_BUSY_S = 30.0  # for so long others may have an SQLite file to themselves
_PING_AFTER_S = 10.0  # a connection that was idle for so long is asked whether it lives

# As Alembic makes it, line by line.
_VERSION_TABLE = """
CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)
"""


def database_url(given: str | Path | None = None) -> str:
    """The database to use: the one given, else `WTB_DATABASE_URL`, else that of the stack that is up in this folder,
    else `.wtb/wtb.db`. A path is that of an SQLite file."""
    if isinstance(given, Path):
        return sa.URL.create("sqlite", database=str(given)).render_as_string()
    if found := given or credential(DATABASE_URL):
        return found
    stack = find_stack()
    return stack.database_url if stack else DEFAULT_URL


@frozen
class Scope:
    """What of a database somebody is limited to.

    Attributes:
        projects: The projects that they may see; None for all.
        token: The name of the token by which they came, which what they submit is charged to.
    """

    projects: frozenset[str] | None = None
    token: str | None = None


@dataclass
class Joined:
    """What is to be written with a change that is yet to come.

    Attributes:
        around: What else is, by whoever called.
        is_committed: Whether it was, and the change with it.
    """

    engine: sa.Engine
    write: Callable[[sa.Connection], None]
    around: Joined | None = None
    is_committed: bool = False


_joined: ContextVar[Joined | None] = ContextVar("joined", default=None)


@frozen
class _Snapshot:
    """A transaction in which a thread reads all that it reads."""

    engine: sa.Engine
    scope: Scope
    connection: sa.Connection


_snapshot: ContextVar[_Snapshot | None] = ContextVar("snapshot", default=None)


class Database:
    """An open database. Threads may share it; processes may not: open it after a fork."""

    def __init__(self, url: str) -> None:
        self.url = _parse(url)
        self.scope = Scope()
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = _engine(self.url, self.is_sqlite)
        guard(url, self.path)
        weakref.finalize(self, self.engine.dispose)  # connections are closed, not just dropped
        self._announcer = Announcer()
        # A database in memory is one connection, so its transactions take turns.
        in_memory = self.is_sqlite and self.path is None
        self._turn: AbstractContextManager[Any] = threading.RLock() if in_memory else nullcontext()

    def within(self, scope: Scope) -> Database:
        """Return the same database for somebody who is limited to a part of it; closing either closes both."""
        other = copy.copy(self)
        other.scope = scope
        return other

    @property
    def shown_url(self) -> str:
        """The URL without its passwords."""
        return shown_url(self.url.render_as_string(hide_password=False))

    @property
    def path(self) -> Path | None:
        """The file of an SQLite database; None in memory and for PostgreSQL."""
        name = self.url.database
        return Path(name) if self.is_sqlite and name and name != ":memory:" else None

    @contextmanager
    def write(self, *, long: bool = False, is_note: bool = False) -> Iterator[sa.Connection]:
        """Begin a transaction that writes. On SQLite it takes the write lock at once.

        Args:
            long: Its statements may take as long as they need; else 30 s on PostgreSQL.
            is_note: It notes what is done and is no change itself: nothing is joined with it.

        Yields:
            A connection in the transaction, which is committed at the end of the block.

        Raises:
            StoreError: If the database is out of reach, damaged or full.
        """
        if self._shared() is not None:
            _snapshot.set(None)  # what is read from now on sees what is written here
        with self._turn, self.reached(), self.engine.connect() as connection:
            growth = Growth()
            connection = connection.execution_options(wtb_write=True, wtb_scope=self.scope, wtb_growth=growth)
            with connection.begin():
                self._give_time(connection, long)
                self._limit(connection)
                yield connection
                all_joined = [] if is_note else self._joined()
                for joined in all_joined:
                    joined.write(connection)
                is_announced = growth.has_grown and self._announcer.announce(connection)
            if is_announced:
                self._announcer.was_committed()
            for joined in all_joined:
                joined.is_committed = True

    @contextmanager
    def joined(self, write: Callable[[sa.Connection], None]) -> Iterator[Joined]:
        """Have something be written with the first change that this thread commits inside the block: both or neither.

        Args:
            write: Called as the last thing in its transaction; of blocks within each other that of the inner one.

        Yields:
            What says whether it was.
        """
        joined = Joined(self.engine, write, _joined.get())
        reset = _joined.set(joined)
        try:
            yield joined
        finally:
            _joined.reset(reset)

    def _joined(self) -> list[Joined]:
        """Return what is to be written with the next change, that of the outermost block first."""
        found, joined = list[Joined](), _joined.get()
        while joined is not None:
            if joined.engine is self.engine and not joined.is_committed:
                found.insert(0, joined)
            joined = joined.around
        return found

    @contextmanager
    def read(self, *, long: bool = False) -> Iterator[sa.Connection]:
        """Begin a transaction that reads a single state of the database, or go on in that of `snapshot`.

        Args:
            long: As for `write`.

        Yields:
            A connection in the transaction.

        Raises:
            StoreError: If the database is out of reach or damaged.
        """
        shared = self._shared()
        if shared is not None and shared.scope == self.scope:
            try:
                with self.reached():
                    self._give_time(shared.connection, long)
                    yield shared.connection
            except BaseException:
                _snapshot.set(None)  # PostgreSQL refuses what follows in a transaction that has failed
                raise
            return
        with self._turn, self.reached(), self.engine.connect() as connection:
            connection = connection.execution_options(wtb_scope=self.scope)
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                self._give_time(connection, long)
                self._limit(connection)
                yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Have all that this thread reads inside the block be read in one transaction, until it writes.

        Each transaction more takes three round trips to PostgreSQL: that it begins, for whom it is, and that it ends.
        On SQLite, where there are none, each goes on being one of its own.
        """
        if self.is_sqlite:
            yield
            return
        with self.read() as connection:
            reset = _snapshot.set(_Snapshot(self.engine, self.scope, connection))
            try:
                yield
            finally:
                _snapshot.reset(reset)

    def _shared(self) -> _Snapshot | None:
        """Return the transaction of `snapshot` that this thread is in, of whatever scope."""
        shared = _snapshot.get()
        return shared if shared is not None and shared.engine is self.engine else None

    def rows(self, query: sa.Executable, *, long: bool = False) -> list[Row]:
        """Read the rows of one query, in a transaction of its own.

        Args:
            query: Any statement that reads.
            long: The query may take as long as it needs, as for `write`.

        Returns:
            The rows by the names of their columns.
        """
        with self.read(long=long) as connection:
            return fetch_rows(connection, query)

    def row(self, query: sa.Executable, *, long: bool = False) -> Row | None:
        """Read the first row of one query as `rows` does, or None if it has none."""
        with self.read(long=long) as connection:
            return fetch_row(connection, query)

    def records(self, kind: type[R], query: sa.Executable, *, long: bool = False) -> list[R]:
        """Read the rows of one query as records, as `fetch_records` makes them, in a transaction of its own."""
        with self.read(long=long) as connection:
            return fetch_records(connection, kind, query)

    def record(self, kind: type[R], query: sa.Executable) -> R | None:
        """Read the first row of one query as a record, or None if it has none."""
        with self.read() as connection:
            return fetch_record(connection, kind, query)

    def tuples(self, query: sa.Executable, *, long: bool = False) -> list[Any]:
        """Read the rows of one query as tuples, in a transaction of its own."""
        with self.read(long=long) as connection:
            return list(connection.execute(query).all())

    def scalar(self, query: TypedReturnsRows[T], *, long: bool = False) -> T | None:
        """Read the first column of the first row of one query, or None if it has no row."""
        with self.read(long=long) as connection:
            return connection.scalar(query)

    def scalars(self, query: TypedReturnsRows[T], *, long: bool = False) -> list[T]:
        """Read the first column of all rows of one query."""
        with self.read(long=long) as connection:
            return list(connection.scalars(query))

    def execute(self, statement: sa.Executable, *, long: bool = False) -> int:
        """Execute one statement that writes, in a transaction of its own. Returns the number of rows it changed."""
        with self.write(long=long) as connection:
            return connection.execute(statement).rowcount

    def _give_time(self, connection: sa.Connection, long: bool) -> None:
        if long and not self.is_sqlite:
            for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {setting} = 0")

    def _limit(self, connection: sa.Connection) -> None:
        """Say for which projects this transaction is, where policies of PostgreSQL ask for it."""
        if not self.is_sqlite and (self.scope.projects is not None or self.url.username == SERVER):
            setting = projects_setting(self.scope.projects)
            connection.exec_driver_sql("SELECT set_config('wtb.projects', %s, true)", (setting,))

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise errors of the driver inside the block as StoreError, where the database is out of reach or damaged."""
        try:
            yield
        except OperationalError as error:
            raise _out_of_reach(f"database {self.shown_url}: {_first_line(error)}") from error
        except sa.exc.TimeoutError as error:
            raise StoreError(f"database {self.shown_url}: all connections of this process are in use") from error
        except self.engine.dialect.loaded_dbapi.OperationalError as error:  # what is sent past SQLAlchemy
            raise StoreError(f"database {self.shown_url}: {str(error).strip().partition(chr(10))[0]}") from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise StoreAway(f"database {self.shown_url}: connection lost: {_first_line(error)}") from error
            if type(error) is sa.exc.DatabaseError:  # SQLite: not a database, or a damaged one
                raise StoreError(f"database {self.shown_url}: {_first_line(error)}") from error
            raise

    def detached(self) -> Any:
        """Return a connection of the driver, not of the pool; each statement is a transaction. The caller closes it."""
        with self.reached():
            pooled = self.engine.raw_connection()
            connection: Any = pooled.driver_connection
            pooled.detach()
        connection.autocommit = True
        return connection

    def exists(self) -> bool:
        """Return whether there is anything to open, without making it."""
        if self.path is not None:
            return self.path.exists()
        return self.revision() is not None

    def revision(self) -> str | None:
        """The migration that the database stands at; None where it is empty."""
        with self.read() as connection:
            return _revision(connection)

    def prepare(self) -> None:
        """Make the tables of an empty database. Raises InputError where it stands at another version."""
        self._make_file()
        revision = self.revision()
        self._check_own()
        if revision is None:
            self._create()
        elif revision != REVISION:
            is_later = revision.isdecimal() and int(revision) > int(REVISION)
            advice = (
                "use the newer WTB that made it" if is_later else "run `wtb db upgrade`, or use the WTB that made it"
            )
            raise InputError(
                f"database {self.shown_url} is of version {revision}; this WTB expects {REVISION}: {advice}"
            )
        self._adopt_log()

    def _check_own(self) -> None:
        """Refuse an SQLite file of another program. Raises InputError."""
        if not self.is_sqlite:
            return
        with self.read() as connection:
            tables = set(sa.inspect(connection).get_table_names())
        if tables and not {"alembic_version", sweeps.name} <= tables:
            raise InputError(
                f"database {self.shown_url} is of another program: it has the table {min(tables)!r}; expected a "
                "database of WTB, or a file that is not there yet"
            )

    def _adopt_log(self) -> None:
        """Have the log of a database that was restored from another server go on here."""
        with self.read() as connection:
            if not is_of_another_server(connection):
                return
        with self.write(long=True) as connection:  # all its rows are rewritten
            self._lock_tables(connection)
            if is_of_another_server(connection):
                adopt_log(connection)

    def _make_file(self) -> None:
        """Make the file of an SQLite database, and its folder, for this user alone: states may hold secrets."""
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
        with suppress(OSError):  # which SQLite says better; its -wal and -shm get the mode of the file
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _create(self) -> None:
        """Create all tables, unless somebody else just has."""
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

    def upgrade(self) -> tuple[str | None, str]:
        """Run the migrations.

        Returns: version before, version after.

        Raises:
            InputError: for a version that is unknown, or too old to be upgraded.
            StoreError: where the tables are not those of the version.
        """
        self._make_file()
        before = self.revision()
        self._check_own()
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with self.write(long=True) as connection:  # rows of a large database are rewritten in one statement
            self._lock_tables(connection)  # two that upgrade at once: the second waits and finds nothing to do
            self._adopt(connection)
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
                build_walls(connection)
            except CommandError as error:
                raise InputError(
                    f"database {self.shown_url} is of version {before}, which this WTB does not know: use a newer WTB"
                ) from error
        return before, REVISION

    def rebuild(self, revision: str, fill: Callable[[sa.Connection], None]) -> None:
        """Replace all tables by those of another version, in one transaction. Not for SQLite.

        Args:
            revision: The version.
            fill: Called with the connection to fill the tables, which are empty.

        Raises:
            InputError: For a version that the migrations do not know.
        """
        from alembic import command
        from alembic.config import Config
        from alembic.util import CommandError

        from wtb.store import squashed

        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        with self.write(long=True) as connection:
            self._lock_tables(connection)
            _drop_tables(connection)
            config.attributes["connection"] = connection
            try:
                # The tables of the last version before the initial one are those of that.
                command.upgrade(config, squashed.INITIAL if revision == squashed.LAST else revision)
            except CommandError as error:
                raise InputError(
                    f"version {revision} is unknown to this WTB: use the one that made the copy"
                ) from error
            fill(connection)

    def _lock_tables(self, connection: sa.Connection) -> None:
        """Let one transaction at a time make or migrate the tables. On SQLite every one that writes is alone."""
        if not self.is_sqlite:
            connection.exec_driver_sql("SET LOCAL lock_timeout = 0")  # others may take a while, each in its turn
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(9182736455)"))
            connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")

    def _adopt(self, connection: sa.Connection) -> None:
        """Have a database of early development stand at the initial migration, or refuse it."""
        from wtb.store import squashed

        revision = _revision(connection)
        if revision in squashed.OLDER:
            raise InputError(
                f"database {self.shown_url} is of version {revision}, and this WTB upgrades from {squashed.LAST} on: "
                f"upgrade it to {squashed.LAST} with an earlier WTB first, or use the WTB that made it"
            )
        if revision == squashed.LAST and (differing := squashed.adopt(connection, str(MIGRATIONS))):
            raise StoreError(
                f"database {self.shown_url} is of version {revision}, but not as WTB made it: {differing}; nothing was "
                f"changed: restore what differs or a backup, or use a new database and this one with an earlier WTB"
            )

    def close(self) -> None:
        self.engine.dispose()


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
    found: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return found


def sqlstate(error: StoreError) -> str | None:
    """Return the code of PostgreSQL's error, where one is the cause."""
    cause = error.__cause__
    return getattr(getattr(cause, "orig", cause), "sqlstate", None)


def was_deadlock(error: StoreError) -> bool:
    """Return whether a transaction was ended for another to go on, so that it can be made again."""
    return sqlstate(error) == "40P01"


def gave_way(error: StoreError) -> bool:
    """Return whether a transaction was ended since others have its rows, so that it can be made again."""
    return was_deadlock(error) or sqlstate(error) == LOCK_NOT_AVAILABLE


def is_disk_full(error: StoreError) -> bool:
    """Return whether a write failed because the disk of the database is full."""
    return sqlstate(error) == "53100" or "disk is full" in str(getattr(error.__cause__, "orig", error.__cause__))


# What PostgreSQL answers where waiting would not help. Before a session begins there are no codes, only words.
_REFUSALS = ("authentication failed", "does not exist", "no pg_hba.conf entry", "no password supplied", "not permitted")


def _out_of_reach(text: str) -> StoreError:
    return StoreError(text) if any(refusal in text for refusal in _REFUSALS) else StoreAway(text)


def _parse(url: str) -> sa.URL:
    """The URL of a database. Raises InputError, which shows no password, for what cannot be one."""
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise _bad_url(url, "cannot be read") from None
    except ValueError:
        raise _bad_url(url, "has a port that is not a number") from None
    backend = parsed.get_backend_name()
    if backend in ("http", "https"):
        shown = shown_url(url)
        raise InputError(
            f"{shown!r} is a server and no database: ask it with `wtb --server {shown}`, or from Python with "
            f"wtb.open({shown!r})"
        )
    if backend not in ("sqlite", "postgresql"):
        raise InputError(f"database URL: {backend!r:.40} is not supported; expected sqlite or postgresql")
    if not url.isprintable():
        raise _bad_url(url, "has a character that cannot be printed")
    problem = _problem_of_sqlite(parsed) if backend == "sqlite" else _problem_of_postgresql(parsed)
    if problem is not None:
        raise _bad_url(url, problem)
    return parsed if backend == "sqlite" else parsed.set(drivername="postgresql+psycopg")


def _bad_url(url: str, problem: str) -> InputError:
    expected = "sqlite:///path/to/file.db or postgresql://user@host/name"
    return InputError(f"database URL {shown_url(url)!r} {problem}; expected {expected}")


def _problem_of_sqlite(url: sa.URL) -> str | None:
    """What is wrong with the URL of an SQLite database; None if nothing is."""
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        return f"asks for the driver {url.get_driver_name()!r:.40}, which WTB does not use"
    if url.host or url.username or url.port:
        return "names a host, which SQLite does not have: three slashes come before a relative path"
    return f"has the option {min(url.query)!r:.40}; SQLite takes none here" if url.query else None


def _problem_of_postgresql(url: sa.URL) -> str | None:
    """What is wrong with the URL of a PostgreSQL database; None if nothing is."""
    from psycopg.pq import Conninfo

    if url.host and "@" in url.host:
        return "has more than one @; write %40 for one in the password"
    if url.port is not None and not 0 < url.port < 65536:
        return f"has the port {url.port!s:.10}, which is not a valid one"
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    for option in url.query:
        if option not in known:
            return f"has the option {option!r:.40}, which PostgreSQL does not know{did_you_mean(option, known)}"
    return None


def _engine(url: sa.URL, is_sqlite: bool) -> sa.Engine:
    """Create the engine. Raises InputError for a URL that the driver cannot read."""
    # Errors must not show the values of users' states.
    create = partial(
        sa.create_engine, url, hide_parameters=True, json_serializer=_dumps, json_deserializer=orjson.loads
    )
    if not is_sqlite:
        given = url.normalized_query.get("options", ())
        arguments = {"connect_timeout": 5, "options": " ".join((_SETTINGS, *given))}
        try:
            engine = create(pool_size=10, max_overflow=5, pool_use_lifo=True, connect_args=arguments)
        except (sa.exc.ArgumentError, ValueError):  # of hosts and ports that stand among the options
            problem = "has a host or port that cannot be read"
            raise _bad_url(url.render_as_string(hide_password=False), problem) from None
        sa.event.listen(engine, "checkin", _note_checkin)
        sa.event.listen(engine, "checkout", partial(_check, engine.dialect))
        return engine
    arguments = {"timeout": _BUSY_S, "check_same_thread": False}
    if url.database in (None, "", ":memory:"):
        create = partial(create, poolclass=sa.StaticPool)
    elif url.database:
        create = partial(create, creator=partial(_connect_sqlite, url.database))
    engine = create(connect_args=arguments)
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _connect_sqlite(file: str) -> sqlite3.Connection:
    """Open a file. One that nothing can be written beside is opened as it is: a log would have to be written to read.

    Changes that are only in a log of before are read from that, if SQLite can.
    """
    path = Path(file)
    if is_hidden_database(file):
        raise InputError(
            f"database {shown_url(f'sqlite:///{file}')} is hidden from nodes: use another one, such as a file in the "
            "workspace; or set `walls = false` below [nodes] in wtb.toml, or WTB_WALLS=0, where the sweep is run"
        )
    if not path.is_file() or (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return sqlite3.connect(file, timeout=_BUSY_S, check_same_thread=False)
    log = path.with_name(f"{path.name}-wal")
    unchanging = "" if log.is_file() and log.stat().st_size else "&immutable=1"
    uri = f"{path.absolute().as_uri()}?mode=ro{unchanging}"
    connection = sqlite3.connect(uri, timeout=_BUSY_S, check_same_thread=False, uri=True)
    connection.execute("PRAGMA query_only=ON").close()  # which `_prepare_sqlite` reads
    return connection


def _note_checkin(connection: Any, record: Any) -> None:
    record.info["idle_since"] = time.monotonic()


def _check(dialect: sa.Dialect, connection: Any, record: Any, fairy: Any) -> None:
    """Ask the server for a sign of life, where a connection may be dead: the pool then makes others.

    A server that ends a connection says so, and what it said can be read. Nothing is heard only of a network that is
    gone, so what was not used for a while is asked, too. To ask each time would take a tenth of a short request.
    """
    since = record.info.get("idle_since")
    if since is None:  # it is new
        return
    if time.monotonic() - since < _PING_AFTER_S and not _is_readable(connection):
        return
    try:
        dialect.do_ping(connection)
    except dialect.loaded_dbapi.Error as error:
        raise sa.exc.InvalidatePoolError from error


def _is_readable(connection: Any) -> bool:
    """Return whether anything was sent on an idle connection, or it is closed."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


@cache  # compiling them takes several times as long as executing them
def _table_statements(driver: str) -> tuple[str, ...]:
    """What makes all tables in databases of a driver."""
    statements: list[str] = []

    def keep(statement: Any, *_: object) -> None:
        statements.append(str(statement.compile(dialect=engine.dialect)))

    engine = sa.create_mock_engine(f"{driver}://", keep)
    metadata.create_all(engine, checkfirst=False)
    return tuple(statements)


def _prepare_sqlite(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # WTB begins its transactions itself
    (is_read_only,) = connection.execute("PRAGMA query_only").fetchone()
    if not is_read_only and not _is_of_another_program(connection):
        _write_ahead(connection)
    for pragma in ("synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _is_of_another_program(connection: Any) -> bool:
    """Return whether a file has tables and none of WTB's: then nothing of it is changed, not even its journal mode."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":  # as WTB's are, so this is quick
        return False
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return bool(names) and sweeps.name not in names


def _write_ahead(connection: Any) -> None:
    """Have a file be written by its log. While others open a new one, too, SQLite refuses that without waiting."""
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL").close()
            return
        except connection.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once, whatever the busy timeout.
    writes = connection.get_execution_options().get("wtb_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _dumps(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0]


def clock(connection: sa.Connection) -> float:
    """Return the time of the database within a transaction, in seconds since the epoch."""
    return float(connection.scalar(sa.select(now())) or 0.0)
