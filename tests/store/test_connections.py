"""Connections: pings of PostgreSQL, reads of one transaction, and new files."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from tests.support.prose import sentence
from wtb.core.errors import StoreError
from wtb.hosting.servers.postgres import connect
from wtb.store import engine
from wtb.store.database import Database
from wtb.store.files.store import FileStore
from wtb.store.housekeeping.contents import other_owners
from wtb.store.transactions import Scope

BACKEND_PID = sa.text("SELECT pg_backend_pid()")


@pytest.fixture
def database(prepared_postgres_url: str) -> Iterator[Database]:
    database = Database(prepared_postgres_url)
    yield database
    database.close()


def count_begins(database: Database) -> list[object]:
    """Return a list that grows with each transaction that begins."""
    connections: list[object] = []
    sa.event.listen(database.engine, "begin", connections.append)
    return connections


def test_a_connection_that_was_just_used_is_not_asked_whether_it_lives(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pings: list[object] = []
    ping = database.engine.dialect.do_ping
    monkeypatch.setattr(
        database.engine.dialect, "do_ping", lambda connection: pings.append(connection) or ping(connection)
    )
    first = database.scalar(BACKEND_PID)
    assert database.scalar(BACKEND_PID) == first
    assert pings == []
    monkeypatch.setattr(engine, "_PING_AFTER_S", 0.0)
    assert database.scalar(BACKEND_PID) == first
    assert len(pings) == 1


def test_a_connection_that_the_server_has_ended_is_replaced_before_it_is_used(
    database: Database, prepared_postgres_url: str
) -> None:
    first = database.scalar(BACKEND_PID)
    with connect(prepared_postgres_url) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert database.scalar(BACKEND_PID) != first


def test_what_a_block_reads_is_one_state_until_it_writes(database: Database) -> None:
    count = sa.text("SELECT count(*) FROM projects")
    counted, other = count_begins(database), Database(database.url.render_as_string(hide_password=False))
    with database.snapshot():
        before = database.scalar(count)
        other.execute(_project("more"))
        assert database.scalar(count) == before
        assert len(counted) == 1
        database.execute(_project("most"))
        assert database.scalar(count) == before + 2  # type: ignore[operator]
    other.close()


def test_a_block_is_only_for_whoever_began_it_and_ends_where_something_fails(database: Database) -> None:
    counted = count_begins(database)
    with database.snapshot():
        database.within(Scope(frozenset({"quokka"}))).scalar(BACKEND_PID)
        assert len(counted) == 2
        with pytest.raises(sa.exc.ProgrammingError):
            database.scalar(sa.text("SELECT nothing"))
        assert database.scalar(BACKEND_PID)
        assert len(counted) == 3


def _project(name: str) -> sa.TextClause:
    return sa.text("INSERT INTO projects (name, created_by) VALUES (:name, 'ann')").bindparams(name=name)


@pytest.fixture
def locker(sqlite_url: str, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another connection that writes to a new file, whose journal is still that of all new files."""
    with closing(sqlite3.connect(tmp_path / "test.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def test_who_opens_a_new_file_waits_for_others_that_do(
    sqlite_url: str, locker: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        locker.execute("COMMIT")

    monkeypatch.setattr(engine, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    database = Database(sqlite_url)
    database.prepare()
    database.close()
    assert len(waits) == 1


def test_a_new_file_that_stays_locked_is_an_error(
    sqlite_url: str, locker: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_BUSY_S", 0.0)
    with pytest.raises(StoreError, match=sentence("database is {}", "locked")):
        Database(sqlite_url).revision()


def test_a_process_that_opens_its_database_again_keeps_the_locks_of_its_connections(tmp_path: Path) -> None:
    """Closing a descriptor of a file ends the process's POSIX locks on it; the next to leave would delete the WAL."""
    file = tmp_path / "wtb.db"
    first, second = Database(f"sqlite:///{file}"), Database(f"sqlite:///{file}")
    first.prepare()
    count = sa.text("SELECT count(*) FROM sessions")
    before = first.scalar(count)

    second.prepare()
    second.close()
    files = FileStore(tmp_path / "files")
    assert other_owners(first, files) == []
    insert = "INSERT INTO sessions (id, name, created_at) VALUES ('s', 's', 0)"
    program = f"import sqlite3; c = sqlite3.connect({str(file)!r}); c.execute({insert!r}); c.commit(); c.close()"
    subprocess.run([sys.executable, "-c", program], check=True)

    assert file.with_name("wtb.db-wal").exists()
    assert first.scalar(count) == before + 1
    first.close()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_another_database_beside_a_store_may_own_its_files_even_if_it_is_damaged(
    tmp_path: Path, is_damaged: bool
) -> None:
    own, beside = Database(f"sqlite:///{tmp_path / 'wtb.db'}"), tmp_path / "beside.db"
    own.prepare()
    (tmp_path / "notes.txt").write_text("no database\n" * 1000)
    (tmp_path / "empty.db").touch()
    with closing(sqlite3.connect(beside)) as connection:
        connection.execute("CREATE TABLE texts (text TEXT)")
        connection.execute("INSERT INTO texts VALUES (?)", ["long " * 10_000])
        connection.commit()
    if is_damaged:
        os.truncate(beside, beside.stat().st_size // 2)
    assert other_owners(own, FileStore(tmp_path / "files")) == [str(beside)]
    own.close()
