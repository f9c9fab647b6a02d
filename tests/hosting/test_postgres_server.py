"""Our own PostgreSQL: starts, answers, survives being stopped and killed, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text

from tests.support.databases import QUICK
from tests.support.prose import sentence
from wtb.core.errors import StoreError
from wtb.hosting.servers import postgres, valkey
from wtb.hosting.servers import server as processes
from wtb.hosting.servers.postgres import PostgresServer, connect, drop_database


@pytest.fixture(scope="module")
def folder(servers_folder: Path) -> Path:
    return servers_folder / "own"


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(folder / "shared", create_databases=True)
    yield server
    server.stop()


@pytest.fixture
def server(shared: PostgresServer) -> PostgresServer:
    return shared if shared.pid else shared.start()


def ended(running: list[psutil.Process], timeout: float) -> bool:
    """Return whether all of them end within `timeout` seconds."""
    return not psutil.wait_procs(running, timeout)[1]


def answer(server: PostgresServer, query: str) -> object:
    with connect(server.url) as connection:
        row = connection.execute(query).fetchone()
    return row and row[0]


def keep(server: PostgresServer, word: str) -> None:
    with connect(server.url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (word text)")
        connection.execute("INSERT INTO kept VALUES (%s)", [word])


def test_answers_through_sqlalchemy(server: PostgresServer) -> None:
    engine = create_engine(server.url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT current_database() || current_user")).scalar() == "wtbwtb"
        assert connection.execute(text("SHOW timezone")).scalar() == "UTC"
        assert connection.execute(text("SHOW server_encoding")).scalar() == "UTF8"
    engine.dispose()


def test_every_installed_server_starts_and_answers(folder: Path) -> None:
    installed = list(postgres.installed())
    assert installed
    for number, programs in enumerate(installed):
        with PostgresServer(folder / f"installed-{number}", binaries=programs) as server:
            assert str(answer(server, "SHOW server_version")).startswith(str(programs.major))


def test_data_address_and_password_survive_stop_and_start(server: PostgresServer) -> None:
    keep(server, "stopped")
    url = server.url
    server.stop()
    assert server.pid is None
    assert server.start().url == url
    assert answer(server, "SELECT count(*) FROM kept WHERE word = 'stopped'") == 1


@pytest.mark.parametrize("crash", [PostgresServer.kill, lambda server: server.stop(immediate=True)])
def test_committed_data_survive_a_crash(server: PostgresServer, crash: Callable[[PostgresServer], None]) -> None:
    keep(server, "crashed")
    before = answer(server, "SELECT count(*) FROM kept")
    with connect(server.url) as client:
        crash(server)
        assert server.pid is None
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    server.start()
    assert answer(server, "SELECT count(*) FROM kept") == before


def test_makes_and_drops_databases(server: PostgresServer) -> None:
    url = server.create_database("Another one")
    with connect(url), pytest.raises(StoreError, match="already exists"):
        server.create_database("Another one")
    with connect(url) as user:
        drop_database(server.url, "Another one")
        with pytest.raises(psycopg.OperationalError):
            user.execute("SELECT 1")
    drop_database(server.url, "Another one")


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_password_is_refused(server: PostgresServer, password: str | None) -> None:
    bad = make_url(server.url)._replace(password=password)
    with pytest.raises(psycopg.OperationalError, match="password"):
        connect(bad.render_as_string(hide_password=False))


def test_files_are_closed_to_others(server: PostgresServer) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in server.directory.iterdir()}
    assert modes == {"data": 0o700, "password": 0o600, "postgres.log": 0o600}


def test_the_role_of_its_url_is_no_superuser(server: PostgresServer, tmp_path: Path) -> None:
    assert answer(server, "SELECT current_setting('is_superuser')") == "off"
    for statement in (
        "COPY (SELECT 1) TO PROGRAM 'true'",
        f"COPY (SELECT 1) TO '{tmp_path / 'file'}'",
        "SELECT pg_read_file('/etc/hostname')",
        "ALTER SYSTEM SET work_mem = '1GB'",
        "ALTER ROLE wtb SUPERUSER",
        "CREATE ROLE another LOGIN",
    ):
        with connect(server.url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_nobody_can_be_the_superuser(server: PostgresServer) -> None:
    stored = server.directory.joinpath("password").read_text()
    for password in (stored, "", None):
        superuser = make_url(server.url)._replace(username=postgres.SUPERUSER, password=password)
        with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry"):
            connect(superuser.render_as_string(hide_password=False))


def test_the_role_may_use_its_own_database_alone_unless_it_is_to_make_others(folder: Path) -> None:
    with PostgresServer(folder / "alone", settings=QUICK) as alone:
        with pytest.raises(StoreError, match="permission denied to create database"):
            alone.create_database("other")
        with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry"):
            connect(make_url(alone.url).set(database="postgres").render_as_string(hide_password=False))


@pytest.mark.parametrize("programs", list(postgres.installed()), ids=lambda programs: str(programs.major))
def test_an_older_directory_whose_role_was_a_superuser_is_upgraded(folder: Path, programs: postgres.Binaries) -> None:
    place = folder / f"older-{programs.major}"
    _make_as_before(place, programs)
    with PostgresServer(place, binaries=programs, settings=QUICK) as server:
        assert server.directory.joinpath("password").read_text() != "known"
        with connect(server.url) as connection:
            row = connection.execute("SELECT current_user, current_setting('is_superuser')").fetchone()
            assert row == ("wtb", "off")
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
            connection.execute("ALTER TABLE kept ADD COLUMN more int")
            connection.execute("INSERT INTO counted DEFAULT VALUES")
            connection.execute("CREATE TABLE another (id int)")
            assert connection.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall() == [("postgres",)]
        old = make_url(server.url).set(password="known")
        for user in ("wtb", "postgres"):
            with pytest.raises(psycopg.OperationalError):
                connect(old.set(username=user).render_as_string(hide_password=False))


def _make_as_before(place: Path, programs: postgres.Binaries) -> None:
    """A directory as it was made when `wtb` was the superuser, with tables of his."""
    data_folder = place / "data"
    data_folder.mkdir(parents=True)
    place.joinpath("password").write_text("known")
    if processes.is_root():
        os.chown(data_folder, processes.NOBODY, processes.NOBODY)
    initdb = [str(programs.folder / "initdb"), "-D", str(data_folder), "-U", "wtb", "--auth=trust", "--encoding=UTF8"]
    subprocess.run([*initdb, "--no-sync"], check=True, capture_output=True, **processes.as_server())
    programs.execute(data_folder, "postgres", ["CREATE DATABASE wtb", "ALTER ROLE wtb PASSWORD 'known'"])
    tables = ["CREATE TABLE kept AS SELECT 42 AS answer", "CREATE TABLE counted (id serial, at int DEFAULT 0)"]
    programs.execute(data_folder, "wtb", tables)


@pytest.mark.skipif(not processes.is_root(), reason="for others servers run as themselves")
def test_for_root_its_directory_may_be_below_one_that_is_closed_to_others(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700, parents=True)
    for programs in postgres.installed():
        with PostgresServer(closed / str(programs.major), binaries=programs, settings=QUICK) as server:
            assert psutil.Process(server.pid).uids().real == processes.NOBODY
            server.kill()
            server.start()
            assert answer(server, "SELECT 1") == 1


@pytest.mark.skipif(not processes.is_root(), reason="for others servers run as themselves")
def test_for_root_a_server_that_its_user_cannot_get_at_is_named_with_the_folder_in_between(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = folder / "venv"
    programs = closed / "bin"
    programs.mkdir(parents=True)
    closed.chmod(0o700)
    for module in (postgres, valkey):
        monkeypatch.setattr(module, "_candidates", lambda: iter([programs]))
    for find in (postgres.find_binaries, valkey.find_binary):
        with pytest.raises(StoreError, match=rf"user 65534, who cannot pass through {closed} .*chmod o\+x {closed}"):
            find()


def test_what_a_killed_server_left_running_does_not_keep_the_next_from_starting(server: PostgresServer) -> None:
    with connect(server.url) as client:
        client.execute("SELECT 1")
        backends = psutil.Process(server.pid).children()
        for process in backends:
            process.suspend()
        psutil.Process(server.pid).kill()
        assert server.wait(10) == sentence("was killed by {}", "SIGKILL")
        assert ended(backends, 0)
        server.start()
    assert answer(server, "SELECT 1") == 1


def test_data_of_another_version_are_not_touched(folder: Path) -> None:
    data_folder = folder / "old" / "data"
    data_folder.mkdir(parents=True)
    (data_folder / "PG_VERSION").write_text("9\n")
    with pytest.raises(StoreError, match=sentence("server of version {}", 9)):
        PostgresServer(folder / "old").start()
    assert [path.name for path in data_folder.iterdir()] == ["PG_VERSION"]


def test_a_tool_that_is_no_server_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped = folder / "wrapped"
    wrapped.mkdir(parents=True)
    for name in ("initdb", "postgres"):
        (wrapped / name).write_text("#!/bin/sh\necho 'not as this user' >&2\nexit 1\n")
        (wrapped / name).chmod(0o755)
    real = postgres.find_binaries()
    monkeypatch.setattr(postgres, "_candidates", lambda: iter([wrapped, real.folder]))
    assert postgres.find_binaries() == real


def test_each_test_gets_an_empty_database(database_url: str) -> None:
    engine = create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE mine (x int)"))
    engine.dispose()


test_and_the_next_one_does_too = test_each_test_gets_an_empty_database
