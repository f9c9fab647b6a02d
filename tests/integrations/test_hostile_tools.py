"""Servers of tools that hang, flood, lie or talk nonsense cost a call, and neither memory nor the process."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import psutil
import pytest

from tests.support.model_server import ModelHandler, serving
from tests.support.prose import sentence
from wtb.integrations import mcp_connection
from wtb.integrations.mcp import ServerLost, ToolFailed
from wtb.integrations.mcp_connection import Connection, Server

# Answers each request of the protocol's older revisions by a rule of its own.
SCRIPTED = """
import json, sys, time
tool = {"name": "read", "inputSchema": {"type": "object"}}
pages = 0
def answer(asked):
    global pages
    method = asked["method"]
    if method == "initialize":
        server = {"name": "x", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server}
    if method == "tools/list":
        pages += 1
        return LISTED
    if method == "tools/call":
        return CALLED
    return None
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    print("this is no message", flush=True)
    result = answer(request)
    reply = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}), flush=True)
"""
LISTED = '{"tools": [tool]}'
CALLED = '{"content": [{"type": "text", "text": "hello"}]}'
LOST = sentence("was lost during {}", "files").removesuffix(" files")
UNLIKE = sentence(": its list of tools")
LATE = sentence("{} did not respond within {} s", "files.read", 1)
LONG = sentence("it sent a message of more than {} bytes", "1,000,000")


def scripted(listed: str = LISTED, called: str = CALLED) -> Server:
    script = SCRIPTED.replace("LISTED", listed).replace("CALLED", called)
    return Server("files", (sys.executable, "-c", script), timeout_s=10.0)


@contextlib.contextmanager
def connected(server: Server) -> Iterator[Connection]:
    connection = Connection(server)
    try:
        yield connection
    finally:
        connection.close()


def test_what_a_server_prints_beside_its_messages_is_passed_over() -> None:
    with connected(scripted()) as connection:
        assert connection.call("read", {}).result() == "hello"


@pytest.mark.parametrize(
    ("listed", "called", "kind", "why"),
    [
        ('{"tools": [tool], "nextCursor": str(pages)}', CALLED, ServerLost, sentence("lists tools endlessly")),
        ('{"tools": "all of them"}', CALLED, ServerLost, f"{LOST} files{UNLIKE}: ValidationError"),
        (LISTED, '{"content": [{"type": "text", "text": 7}]}', ServerLost, f"{LOST} files.read: Validation"),
        (LISTED, "[1]", ToolFailed, LATE),
        (LISTED, "time.sleep(60)", ToolFailed, LATE),
        (LISTED, "sys.exit(0)", ServerLost, f"{LOST} files.read"),
        (LISTED, '{"content": [], "isError": True}', ToolFailed, sentence("it failed without a message")),
        (LISTED, "print('x' * 3_000_000)", ServerLost, LONG),
    ],
)
def test_a_server_that_lies_or_hangs_costs_one_call(
    monkeypatch: pytest.MonkeyPatch, listed: str, called: str, kind: type[Exception], why: str
) -> None:
    monkeypatch.setattr(mcp_connection, "MOST_LINE", 1_000_000)
    hangs = "did not respond" in why
    server = scripted(listed, called)
    with connected(Server("files", server.command, timeout_s=1.0 if hangs else 10.0)) as connection:
        if hangs:
            connection.tools()
        with pytest.raises(kind, match=why.replace("(", r"\(")):
            connection.call("read", {}).result()
        connection.server = scripted()
        if connection._holding is not None:
            connection._submit(connection._closed()).result()
        assert connection.call("read", {}).result() == "hello"


def test_a_line_without_an_end_is_not_collected_and_its_writer_ended() -> None:
    flood = "import sys\nwhile True: sys.stdout.write('x' * 65_536)"
    before = psutil.Process().memory_info().rss
    server = Server("files", (sys.executable, "-c", flood))
    with connected(server) as connection, pytest.raises(ServerLost, match=sentence("more than {} bytes", "12,000,000")):
        connection.tools()
    assert psutil.Process().memory_info().rss - before < 20 * mcp_connection.MOST_LINE
    survivors = [process for process in psutil.Process().children() if flood in process.cmdline()]
    assert not survivors


def test_a_program_that_does_not_end_is_killed_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_connection, "GRACE_S", 0.3)
    stubborn = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(987)'])\n"
    )
    server = scripted()
    script = f"{stubborn}{server.command[2]}\nimport time\ntime.sleep(987)"
    with connected(Server("files", (sys.executable, "-c", script))) as connection:
        assert connection.call("read", {}).result() == "hello"
        mine = psutil.Process().children(recursive=True)
        started = [process for process in mine if "987" in " ".join(process.cmdline())]
        assert len(started) == 2
    ended, alive = psutil.wait_procs(started, timeout=10)
    assert (len(ended), alive) == (2, [])


def _endless(kind: str, encoding: str = "") -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", kind)
        if encoding:
            request.send_header("Content-Encoding", encoding)
        request.end_headers()
        with contextlib.suppress(OSError):
            request.wfile.write(b'{"jsonrpc": ' if kind == "application/json" else b"data: ")
            while True:
                request.wfile.write(b"x" * 65_536)

    return answer


def _hang(request: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


def _redirect(request: BaseHTTPRequestHandler) -> None:
    request.send_response(307)
    request.send_header("Location", "http://169.254.169.254/latest/meta-data")
    request.end_headers()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (_endless("application/json"), LONG),
        (_endless("text/event-stream"), "SSE stream ended without a response"),
        (_endless("application/json", "gzip"), sentence("it sent a compressed response, which was not asked for")),
        (_hang, sentence("no answer within {} s", 1)),
        (_redirect, "cannot be used: MCPError: Redirect to .* not followed"),
    ],
    ids=["json", "events", "gzip", "hangs", "redirects"],
)
def test_an_address_that_floods_or_hangs_is_lost(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[BaseHTTPRequestHandler], None], why: str
) -> None:
    monkeypatch.setattr(mcp_connection, "MOST_LINE", 1_000_000)
    if answer is _hang:
        monkeypatch.setattr(mcp_connection, "START_S", 1.0)
    sent: list[int] = []

    class Handler(ModelHandler):
        protocol_version = "HTTP/1.0"

        def do_POST(self) -> None:
            self.read_json()
            sent.append(1)
            answer(self)

    with serving(Handler) as address:
        server = Server("files", url=f"{address}/mcp", timeout_s=10.0)
        with connected(server) as connection, pytest.raises(ServerLost, match=why):
            connection.tools()
    assert sent
