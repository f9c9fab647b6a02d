"""Databases for tests. A test that asks for PostgreSQL gets a real one, and fails where there is none."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url

from wtb.servers.databases import connect
from wtb.servers.postgres import PostgresServer

# What tests start is to heed Ctrl-C and the end of a terminal, also where the tests themselves run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Nothing here has to survive a power cut.
QUICK = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "max_wal_size": "64MB"}


@pytest.fixture(scope="session")
def servers_folder() -> Iterator[Path]:
    """A folder for servers' data. Not tmp_path: for root they run as a user to whom that is closed."""
    with tempfile.TemporaryDirectory(prefix="wtb-tests-", dir=_quick_disk()) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture(scope="session")
def postgres_url(servers_folder: Path) -> Iterator[str]:
    """One PostgreSQL for the whole run: that of WTB_TEST_POSTGRES_URL, else a private one.

    For looking only: a test that writes takes `fresh_postgres_url`, one that stops a server starts its own.
    """
    if given := os.environ.get("WTB_TEST_POSTGRES_URL"):
        yield make_url(given).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
        return
    with PostgresServer(servers_folder / "session", settings=QUICK, die_with_parent=True) as server:
        yield server.url


@pytest.fixture(scope="session")
def postgres_admin(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection that makes and drops the tests' databases; opening it costs more than its work."""
    with connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def fresh_postgres_url(postgres_url: str, postgres_admin: psycopg.Connection) -> Iterator[str]:
    """An empty PostgreSQL database of the test's own."""
    name = f"wtb_test_{secrets.token_hex(6)}"
    # Without a disk to wait for, copying files beats copying through the log, the default since 15.
    strategy = "STRATEGY file_copy" if postgres_admin.info.server_version >= 150000 else ""
    postgres_admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 {strategy}")
    yield make_url(postgres_url).set(database=name).render_as_string(hide_password=False)
    postgres_admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


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


def _quick_disk() -> str:
    """Memory, where it is offered and roomy: a new database is 300 files: 0.01 s there, 0.2 s on a disk."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**30:
        return memory
    return tempfile.gettempdir()
