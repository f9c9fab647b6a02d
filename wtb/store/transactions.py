"""Transactions of a database: reading ones, writing ones, and rows that are written with a change."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.sql.selectable import TypedReturnsRows

from wtb.config.credentials import guard, shown_url
from wtb.core.errors import StoreAway, StoreError
from wtb.core.frozen import frozen
from wtb.store.bulk import Row, fetch_among, fetch_record, fetch_records, fetch_row, fetch_rows
from wtb.store.database_url import first_line, out_of_reach, parse_url
from wtb.store.engine import make_engine
from wtb.store.log import Announcer, Growth
from wtb.store.tables.schema import now
from wtb.store.tables.walls import SERVER, projects_setting

T = TypeVar("T")
R = TypeVar("R")


@frozen
class Scope:
    """The part of a database to which a caller is limited.

    Attributes:
        projects: The visible projects; None for all.
        token: The name of the access token, to which submissions are charged.
    """

    projects: frozenset[str] | None = None
    token: str | None = None


@dataclass
class Joined:
    """A write that joins a change that is yet to come.

    Attributes:
        engine: The engine of the database.
        write: Writes the rows.
        around: The write of an outer block.
        is_committed: Whether it was committed with a change.
    """

    engine: sa.Engine
    write: Callable[[sa.Connection], None]
    around: Joined | None = None
    is_committed: bool = False


_joined: ContextVar[Joined | None] = ContextVar("joined", default=None)


@frozen
class _Snapshot:
    """A transaction that all reads of a thread share."""

    engine: sa.Engine
    scope: Scope
    connection: sa.Connection


_snapshot: ContextVar[_Snapshot | None] = ContextVar("snapshot", default=None)


class Transactions:
    """An open database for reading and writing. Threads may share it; processes may not: open it after a fork."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.scope = Scope()
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.engine = make_engine(self.url, self.is_sqlite)
        guard(url, self.path)
        weakref.finalize(self, self.engine.dispose)  # connections are closed, not just dropped
        self._announcer = Announcer()
        # A database in memory is one connection, so its transactions take turns.
        in_memory = self.is_sqlite and self.path is None
        self._turn: AbstractContextManager[Any] = threading.RLock() if in_memory else nullcontext()

    def within(self, scope: Scope) -> Self:
        """Return the same database for a caller who is limited to a part of it; closing either closes both."""
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
            long: Let statements take as long as they need, not just 30 s on PostgreSQL.
            is_note: The transaction only records something, so that no joined write belongs to it.

        Yields:
            A connection in the transaction, which is committed at the end of the block.

        Raises:
            StoreError: If the database is out of reach, damaged or full.
        """
        if self._shared() is not None:
            _snapshot.set(None)  # later reads have to see these writes
        with self._turn, self.reached(), self.engine.connect() as connection:
            growth = Growth()
            connection = connection.execution_options(wtb_write=True, wtb_scope=self.scope, wtb_growth=growth)
            with connection.begin():
                self._give_time(connection, long)
                self._limit(connection)
                yield connection
                # As the last statements: a joined write, such as a row of the audit
                # log, may make others wait until the commit.
                all_joined = [] if is_note else self._joined()
                for joined in all_joined:
                    joined.write(connection)
                is_announced = growth.has_grown and self._announcer.announce(connection)
            # Only after the commit: an announcement of a failed transaction must not delay the next one.
            if is_announced:
                self._announcer.was_committed()
            for joined in all_joined:
                joined.is_committed = True

    @contextmanager
    def joined(self, write: Callable[[sa.Connection], None]) -> Iterator[Joined]:
        """Join a write to the first change that this thread commits inside the block: both are committed, or neither.

        Args:
            write: Called as the last thing in the transaction; with nested blocks, that of the inner block comes last.

        Yields:
            The joined write, which shows whether it was committed.
        """
        joined = Joined(self.engine, write, _joined.get())
        reset = _joined.set(joined)
        try:
            yield joined
        finally:
            _joined.reset(reset)

    def _joined(self) -> list[Joined]:
        """Return the writes to join to the next change, that of the outermost block first."""
        blocks, joined = list[Joined](), _joined.get()
        while joined is not None:
            if joined.engine is self.engine and not joined.is_committed:
                blocks.insert(0, joined)
            joined = joined.around
        return blocks

    @contextmanager
    def read(self, *, long: bool = False) -> Iterator[sa.Connection]:
        """Begin a transaction that reads one state of the database, or join that of `snapshot`.

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
                _snapshot.set(None)  # PostgreSQL rejects further statements in a failed transaction
                raise
            return
        with self._turn, self.reached(), self.engine.connect() as connection:
            connection = connection.execution_options(wtb_scope=self.scope)
            if not self.is_sqlite:
                # Several queries of one operation have to agree, and READ COMMITTED takes a snapshot for each.
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                self._give_time(connection, long)
                self._limit(connection)
                yield connection

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all reads of this thread inside the block share one transaction, until it writes.

        Each transaction takes three more round trips to PostgreSQL: for its begin, its scope and its end. On SQLite,
        which has no round trips, each read has a transaction of its own.
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
        """Return the transaction of `snapshot` in which this thread is, of whatever scope."""
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

    def count(self, *conditions: sa.ColumnElement[bool], source: sa.FromClause | None = None) -> int:
        """Count rows: of the tables that the conditions name, or of another source."""
        query = sa.select(sa.func.count()).where(*conditions)
        return self.scalar(query if source is None else query.select_from(source)) or 0

    def scalars(self, query: TypedReturnsRows[T], *, long: bool = False) -> list[T]:
        """Read the first column of all rows of one query."""
        with self.read(long=long) as connection:
            return list(connection.scalars(query))

    def rows_among(self, query: sa.Select[Any], column: sa.ColumnElement[Any], keys: Iterable[Any]) -> list[Any]:
        """Read the rows whose `column` has one of many values, as `fetch_among` does, in a transaction of its own."""
        with self.read() as connection:
            return list(fetch_among(connection, query, column, keys))

    def execute(self, statement: sa.Executable, *, long: bool = False) -> int:
        """Execute one statement that writes, in a transaction of its own. Returns the number of rows it changed."""
        with self.write(long=long) as connection:
            return connection.execute(statement).rowcount

    def _give_time(self, connection: sa.Connection, long: bool) -> None:
        if long and not self.is_sqlite:
            for setting in ("statement_timeout", "idle_in_transaction_session_timeout"):
                connection.exec_driver_sql(f"SET LOCAL {setting} = 0")

    def _limit(self, connection: sa.Connection) -> None:
        """Set the projects of a transaction, for the policies of PostgreSQL."""
        # Policies apply to the role of servers, so that for other roles the setting would be a wasted round trip.
        if not self.is_sqlite and (self.scope.projects is not None or self.url.username == SERVER):
            setting = projects_setting(self.scope.projects)
            connection.exec_driver_sql("SELECT set_config('wtb.projects', %s, true)", (setting,))

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Raise driver errors inside the block as StoreError if the database is out of reach or damaged."""
        try:
            yield
        except OperationalError as error:
            raise out_of_reach(f"database {self.shown_url}: {first_line(error.orig)}") from error
        except sa.exc.TimeoutError as error:
            raise StoreError(f"database {self.shown_url}: all connections of this process are in use") from error
        except self.engine.dialect.loaded_dbapi.OperationalError as error:  # statements that bypass SQLAlchemy
            raise StoreError(f"database {self.shown_url}: {first_line(error)}") from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise StoreAway(f"database {self.shown_url}: connection lost: {first_line(error.orig)}") from error
            if type(error) is sa.exc.DatabaseError:  # SQLite: not a database, or a damaged one
                raise StoreError(f"database {self.shown_url}: {first_line(error.orig)}") from error
            raise

    def detached(self) -> Any:
        """Return a connection of the driver, not of the pool; each statement is a transaction. The caller closes it."""
        with self.reached():
            pooled = self.engine.raw_connection()
            connection: Any = pooled.driver_connection
            pooled.detach()
        connection.autocommit = True
        return connection

    def close(self) -> None:
        self.engine.dispose()


def clock(connection: sa.Connection) -> float:
    """Return the time of the database within a transaction, in seconds since the epoch."""
    return float(connection.scalar(sa.select(now())) or 0.0)
