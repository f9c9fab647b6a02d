"""Our own Valkey: starts, answers, keeps nothing, survives being killed, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from wtb.hosting.servers.valkey import ValkeyServer

AT_ONCE = Retry(NoBackoff(), 0)


@pytest.fixture(scope="module")
def folder(servers_folder: Path) -> Path:
    return servers_folder / "own-valkey"


@pytest.fixture(scope="module")
def shared(folder: Path) -> Iterator[ValkeyServer]:
    server = ValkeyServer(folder / "shared")
    yield server
    server.stop()


@pytest.fixture
def server(shared: ValkeyServer) -> ValkeyServer:
    return shared if shared.pid else shared.start()


def ended(running: list[psutil.Process], timeout: float) -> bool:
    """Return whether all of them end within `timeout` seconds."""
    return not psutil.wait_procs(running, timeout)[1]


def process_of(server: ValkeyServer) -> psutil.Process:
    assert server.pid
    return psutil.Process(server.pid)


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5, retry=AT_ONCE)


def fill(connection: redis.Redis) -> None:
    for number in range(100):
        connection.set(f"key {number}", bytes(100_000))


def test_answers_through_the_url_that_celery_gets(server: ValkeyServer) -> None:
    with client(server.url) as connection:
        assert connection.ping()
    assert server.url.startswith("redis://:")


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_password_is_refused(server: ValkeyServer, password: str | None) -> None:
    connection = redis.Redis(port=urlsplit(server.url).port or 0, password=password, retry=AT_ONCE)
    with connection, pytest.raises(redis.AuthenticationError):
        connection.ping()


def test_a_password_of_any_characters_can_be_given(folder: Path) -> None:
    password = 'a "b" \\ @:/#% ü'
    with ValkeyServer(folder / "given", password=password) as server:
        with client(server.url) as connection:
            assert connection.ping()
        port = urlsplit(server.url).port
        with redis.Redis(port=port or 0, password=password, retry=AT_ONCE) as connection:
            assert connection.ping()


def test_the_password_is_in_no_list_of_processes(server: ValkeyServer) -> None:
    password = urlsplit(server.url).password
    running = process_of(server)
    assert password
    assert password not in " ".join(running.cmdline())
    assert password not in str(running.environ())


def test_files_are_closed_to_others(server: ValkeyServer) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in server.directory.iterdir()}
    assert modes.keys() == {"password", "valkey.log"}
    assert modes["password"] == modes["valkey.log"] == 0o600
    assert server.directory.stat().st_mode & 0o777 == 0o700


def test_address_and_password_survive_a_kill_and_what_was_in_it_does_not(server: ValkeyServer) -> None:
    url = server.url
    with client(url) as connection:
        connection.set("key", "value")
    server.kill()
    assert server.pid is None
    with client(url) as connection, pytest.raises(redis.ConnectionError):
        connection.ping()
    assert server.start().url == url
    with client(url) as connection:
        assert connection.dbsize() == 0


def test_nothing_is_written_to_disk(server: ValkeyServer) -> None:
    with client(server.url) as connection:
        connection.set("key", "value")
        assert connection.config_get("save") == {"save": ""}
        assert connection.config_get("appendonly") == {"appendonly": "no"}
    server.stop()
    assert {path.name for path in server.directory.iterdir()} == {"password", "valkey.log"}


def test_settings_are_the_servers(folder: Path) -> None:
    with ValkeyServer(folder / "small", settings={"maxmemory": "3mb"}) as small, client(small.url) as connection:
        assert connection.config_get("maxmemory") == {"maxmemory": "3145728"}
        with pytest.raises(redis.OutOfMemoryError):
            fill(connection)


def test_a_stopped_one_is_killed_where_it_does_not_hear(server: ValkeyServer) -> None:
    running = process_of(server)
    os.kill(running.pid, signal.SIGSTOP)
    server.stop(timeout=0.5)
    assert ended([running], 0)
