"""Requests that are too large, too deep, too slow or too many are told so, and everybody else is answered meanwhile."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psutil
import pytest
from websockets.sync.client import connect

from tests.hosting.api.serving import HEADERS, TOKEN, Server, answering
from tests.support.bench import make_bench
from tests.support.project import Project
from tests.support.prose import sentence
from tests.support.tenants import asking
from wtb.hosting.api import connections
from wtb.hosting.api.app import make_app
from wtb.hosting.api.guard import is_deeper
from wtb.hosting.api.routes import PREFIX
from wtb.operations.context import Context
from wtb.store.database import Database

HEAD = f"POST {PREFIX}/plans HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
MANY, WAVES = 10_000, 6


@contextmanager
def served(database: Database) -> Iterator[int]:
    """A server. Yields its port."""
    with answering(make_app(Context(database), token=TOKEN, hosts=["127.0.0.1"])) as url:
        yield int(url.rpartition(":")[2])


@pytest.fixture
def empty() -> Iterator[Database]:
    with closing(Database("sqlite:///:memory:")) as database:
        database.prepare()
        yield database


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def answer_of(connection: socket.socket) -> tuple[int, str]:
    """Return the status and the detail of the problem that a connection is answered."""
    with http.client.HTTPResponse(connection) as response:
        response.begin()
        body = response.read()
        assert response.headers["Content-Type"] == "application/problem+json", body
        return response.status, json.loads(body)["detail"]


def busy(limit: int) -> str:
    return sentence("there are {} connections, which is the limit; try again in a moment", limit)


def is_serving(port: int) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", f"{PREFIX}/sweeps", headers=HEADERS)
        return connection.getresponse().status == 200


def test_what_is_wrong_with_a_connection_is_said_and_the_server_continues(
    empty: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with served(empty) as port, ExitStack() as stack:
        slow, silent, wrong, large, deep = (stack.enter_context(connected(port)) for _ in range(5))
        slow.sendall(HEAD)
        wrong.sendall(b"what?\r\n\r\n")
        large.sendall(HEAD + b"X: " + b"x" * 100_000)
        body = b'{"keys":' + b"[" * 200 + b"]" * 200 + b"}"
        deep.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert is_serving(port)
        late = sentence("the head of a request had not come after {} s, which is the limit", "0.3")
        assert answer_of(slow) == (408, late)
        for connection in (wrong, large):
            status, detail = answer_of(connection)
            assert status == 400
            assert sentence("larger than {} bytes, which is the limit", "16,384") in detail
        assert answer_of(deep) == (400, sentence("the body is nested deeper than {} levels, which is the limit", 100))
        assert silent.recv(100) == b"", "who says nothing is told nothing"
        assert is_serving(port)


def test_connections_beyond_the_limit_are_told_so(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 3)
    with served(empty) as port, ExitStack() as stack:
        first = [stack.enter_context(connected(port)) for _ in range(3)]
        for connection in first:
            connection.sendall(HEAD)  # and not the rest
        extra = stack.enter_context(connected(port))
        extra.sendall(HEAD + b"Content-Length: 2\r\n\r\n{}")
        assert answer_of(extra) == (503, busy(3))
        assert extra.recv(100) == b""
        first[0].close()
        first[1].sendall(b"Content-Length: 2\r\n\r\n{}")
        assert answer_of(first[1])[0] == 400


def test_of_a_flood_each_is_told_at_once(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it asks: who waits for that takes memory."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr(connections, "MOST_REFUSED", 2)
    with served(empty) as port, ExitStack() as stack:
        served_first, *rest = (stack.enter_context(connected(port)) for _ in range(5))
        served_first.sendall(HEAD)
        for connection in rest[2:]:
            assert answer_of(connection) == (503, busy(1))
        rest[0].sendall(HEAD)
        assert answer_of(rest[0])[0] == 503, "it was waited for"


def test_a_websocket_lasts_longer_than_the_head_of_a_request_may_take(
    monkeypatch: pytest.MonkeyPatch, prepared_url: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    with closing(Database(prepared_url)) as database:
        bench = make_bench(database, tmp_path, asking())
        bench.run()
        path = f"{PREFIX}/sweeps/{bench.sweep_id}/events"
        with served(database) as port, connect(f"ws://127.0.0.1:{port}{path}", additional_headers=HEADERS) as stream:
            with connected(port) as silent:
                assert silent.recv(100) == b"", "it came later, and its time is up"
            assert stream.ping().wait(20)


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b"[" * 5 + b"]" * 5, False),
        (b"[" * 6 + b"]" * 6, True),
        (b'{"a":' * 6 + b"1" + b"}" * 6, True),
        (b'["' + b"[" * 50 + b'"]', False),
        (b'["\\"' + b"[" * 50 + b'"]', False),
        (b"[" + b"[[1],{}]," * 1_000 + b"1]", False),
        (b"[" + b"[[1],{}]," * 1_000 + b"[[[[[1]]]]]]", True),
        (b"[" * 100_000, True),
        (b'\\"' * 400_000 + b"[" * 10, False),
    ],
)
def test_nesting_is_counted_outside_of_texts_and_soon(body: bytes, deep: bool) -> None:
    start = time.process_time()
    assert is_deeper(body, 5) is deep
    assert time.process_time() - start < 2


@pytest.mark.slow
def test_ten_thousand_connections_and_half_open_streams_are_refused_and_cost_no_memory(empty_project: Project) -> None:
    """The server goes on answering who keeps a connection, and then everybody again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, MANY + 2_000), hard))
    empty_project.inside("admin", "project", "create", "quokka", check=0)
    server = Server(empty_project)
    server.start()
    try:
        assert server.running is not None
        process = psutil.Process(server.running.pid)
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as client:
            used = [_used_by_many(server.port, client, process, empty_project) for _ in range(WAVES)]
        assert max(own for own, _ in used) < 120e6, "as at rest; a few kilobytes kept of each would be more"
        assert used[-1][1] < 1.05 * used[1][1], f"what the first ones took is enough for all that come: {used}"
    finally:
        server.kill()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _used_by_many(
    port: int, client: http.client.HTTPConnection, process: psutil.Process, project: Project
) -> tuple[int, int]:
    """The bytes of memory that a server has with so many connections: its own, and with what it shares with its parent.

    A server of the tests is forked: what it shares becomes its own by and by, whatever it does.
    """
    connections = []
    for number in range(MANY):
        connections.append(_half_open_connection(port, number))
        if number % 1_000 == 0:
            client.request("GET", f"{PREFIX}/health")
            assert client.getresponse().read()
    used = process.memory_full_info()
    for connection in connections:
        connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )  # they end without a message
        connection.close()
    project.until(lambda: is_serving(port), "the server answers everybody again")
    return int(used.uss), int(used.rss)


def _half_open_connection(port: int, number: int) -> socket.socket:
    """A connection on which nothing, a part of a head, a part of a body or a stream that nobody reads is asked."""
    beginnings = (b"", HEAD, HEAD + b"Content-Length: 100\r\n\r\n{", HEAD.replace(b"POST", b"GET") + b"\r\n")
    connection = connected(port)
    connection.sendall(beginnings[number % 4])
    return connection


def test_an_answer_in_parts_waits_for_no_acknowledgement() -> None:
    """Linux acknowledges on a connection that is kept after 40 ms, for which each answer waited."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections.prepare(listening)
        with connected(listening.getsockname()[1]):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# Heads


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n",
    ],
)
def test_a_body_with_two_lengths_ends_its_connection(empty: Database, head: bytes) -> None:
    """A proxy in front may take bytes behind the body for a part of it, and the server for a request."""
    smuggled = b"0\r\n\r\nGET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(empty) as port, connected(port) as connection:
        connection.sendall(head + smuggled)
        answer = b""
        while block := connection.recv(65_536):
            answer += block
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in answer.lower()
    assert b"chunks beside a Content-Length" in answer


@pytest.mark.parametrize("padding", [b"X-Padding: " + b"x" * 17_000, b"\r\n".join([b"X-A: b"] * 2_500)])
@pytest.mark.parametrize("path", [f"{PREFIX}/plans", "/"])
def test_a_head_that_comes_at_once_has_the_same_limit(empty: Database, padding: bytes, path: str) -> None:
    head = b"GET " + path.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + padding + b"\r\n\r\n"
    with served(empty) as port, connected(port) as connection:
        connection.sendall(head)
        status, detail = answer_of(connection)
    assert (status, sentence("larger than {} bytes, which is the limit", "16,384") in detail) == (400, True)


def test_a_head_below_the_limit_is_read(empty: Database) -> None:
    head = f"GET {PREFIX}/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Padding: {'x' * 16_000}\r\n\r\n"
    with served(empty) as port, connected(port) as connection:
        connection.sendall(head.encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
