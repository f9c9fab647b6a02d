"""Databases for tests. A test that asks for PostgreSQL gets a real one, and fails where there is none."""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from tests.support import deadlines
from wtb.hosting.servers.postgres import PostgresServer, connect
from wtb.store import transactions
from wtb.store.database import Database

# Nothing here has to survive a power cut, and whoever drops a database may not end what vacuums it just then.
QUICK = dict.fromkeys(("autovacuum", "fsync", "full_page_writes", "synchronous_commit"), "off")
QUICK["max_wal_size"] = "64MB"


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """Compile a statement once a process, not once for each of its hundreds of databases: a sweep has fifty of them."""
    compiled: dict[Any, Any] = {}
    original = transactions.make_engine

    def share(*args: Any) -> Engine:
        engine = original(*args)
        engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions, "make_engine", share)
        for dialect in (PGDialect_psycopg, SQLiteDialect_pysqlite):  # those of all databases compile alike
            patch.setattr(dialect, "__eq__", lambda first, other: type(first) is type(other))
            patch.setattr(dialect, "__hash__", lambda first: hash(type(first)))
        yield


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """A folder for servers' data. Not tmp_path: for root they run as a user to whom that is closed."""
    with tempfile.TemporaryDirectory(prefix=deadlines.folder_prefix(), dir=quick_disk()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres_url(servers_folder: Path) -> Iterator[str]:
    """One PostgreSQL for the whole run: that of WTB_TEST_POSTGRES_URL, else a private one.

    For looking only: a test that writes takes `fresh_postgres_url`, one that stops a server starts its own.
    """
    if url := os.environ.get("WTB_TEST_POSTGRES_URL"):
        yield make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        return
    with PostgresServer(servers_folder / "session", settings=QUICK, create_databases=True) as server:
        yield server.url


@pytest.fixture(scope="session")
def postgres_admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection that makes and drops the tests' databases; opening it costs more than its work."""
    with connect(postgres_url) as connection:
        yield connection


@contextmanager
def postgres_database(url: str, admin: psycopg.Connection, template: str = "template0") -> Iterator[str]:
    """The URL of a new database on the server of another URL; it is dropped again."""
    name = f"wtb_test_{secrets.token_hex(6)}"
    # Without a disk to wait for, copying files beats copying through the log, the default since 15.
    strategy = "STRATEGY file_copy" if admin.info.server_version >= 150000 else ""
    admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} {strategy}")
    yield make_url(url).set(database=name).render_as_string(hide_password=False)
    admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def fresh_postgres_url(postgres_url: str, postgres_admin: psycopg.Connection) -> Iterator[str]:
    """An empty PostgreSQL database of the test's own."""
    with postgres_database(postgres_url, postgres_admin) as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_url: str, postgres_admin: psycopg.Connection) -> Iterator[str]:
    """The name of a database that has the tables: copying it takes a tenth of making them."""
    with postgres_database(postgres_url, postgres_admin) as url:
        database = Database(url)
        database.prepare()
        database.close()
        yield str(database.url.database)


@pytest.fixture
def prepared_postgres_url(
    postgres_url: str, postgres_admin: psycopg.Connection, postgres_template: str
) -> Iterator[str]:
    """A PostgreSQL database of the test's own that has the tables."""
    with postgres_database(postgres_url, postgres_admin, postgres_template) as url:
        yield url


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """An SQLite file, not there yet, of the test's own."""
    return f"sqlite:///{tmp_path / 'test.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of the test's own; the test runs once on each kind."""
    # By name, so that a run without PostgreSQL tests starts no server.
    url: str = request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "fresh_postgres_url")
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def prepared_url(request: pytest.FixtureRequest) -> str:
    """A database of the test's own that has the tables; the test runs once on each kind."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("prepared_postgres_url"))
    url: str = request.getfixturevalue("sqlite_url")
    Path(str(make_url(url).database)).write_bytes(sqlite_tables())
    return url


@functools.cache
def sqlite_tables() -> bytes:
    """An SQLite database that has the tables and nothing else."""
    database = Database("sqlite://")
    database.prepare()
    with database.read() as connection:
        tables: bytes = connection.connection.driver_connection.serialize()  # type: ignore[union-attr]
    database.close()
    return tables


def quick_disk() -> str:
    """Memory, where it is offered and roomy: a new database is 300 files: 0.01 s there, 0.2 s on a disk."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**31 and not _refuses_programs(memory):
        return memory
    return tempfile.gettempdir()


def _refuses_programs(folder: str) -> bool:
    """Return whether nothing in a folder can be started, as tests start programs that they write."""
    return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
