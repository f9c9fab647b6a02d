"""Responses of a server as a client sees them: errors of operations, repeated requests, and versions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.support.prose import sentence
from wtb.core import errors
from wtb.core.errors import AccessDenied, InputError, NotFound, ServerError, WTBError
from wtb.core.version import __version__
from wtb.hosting.api.problems import problem_of
from wtb.hosting.api.routes import ROUTES
from wtb.hosting.client import requests
from wtb.hosting.client.following import Filter, Lines, Stream
from wtb.hosting.client.requests import KEY, check, check_version
from wtb.hosting.client.results import result_of
from wtb.hosting.client.server import Server
from wtb.operations.control.pause_cancel import set_breakpoints
from wtb.operations.inspection.sweeps import list_sweeps

TREE = sorted(
    {error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, WTBError)},
    key=lambda kind: kind.__name__,
)


def test_what_a_policy_forbids_is_forbidden() -> None:
    assert problem_of(AccessDenied("ana may not answer")).status_code == 403


@pytest.mark.parametrize("kind", TREE)
def test_an_error_is_raised_again_with_its_class_and_its_words(kind: type[WTBError]) -> None:
    texts = ["one thing is wrong", "and another"] if issubclass(kind, InputError) else ["one thing is wrong"]
    raised = kind(*texts, argument="limit")
    sent = problem_of(raised)
    response = httpx.Response(sent.status_code, headers={"Content-Type": sent.media_type}, content=sent.body)
    with pytest.raises(WTBError) as error:
        check("http://there", response)
    assert type(error.value) is kind
    assert (str(error.value), error.value.argument, error.value.exit_code) == (str(raised), "limit", kind.exit_code)
    if isinstance(error.value, InputError):
        assert error.value.problems == tuple(texts)


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (
            401,
            {"detail": sentence("the token is missing")},
            AccessDenied,
            "http://there: " + sentence("the token is missing"),
        ),
        (403, {"detail": "token 'ann' may read"}, AccessDenied, "http://there: token 'ann' may read"),
        (400, {"detail": "no", "problems": ["limit: no", "since: no"]}, InputError, "limit: no\nsince: no"),
        (
            500,
            {"detail": sentence("this is a fault of the server")},
            ServerError,
            "http://there: " + sentence("this is a fault of the server"),
        ),
        (413, {"detail": sentence("{} is too large", "the body")}, ServerError, "http://there: the body is too large"),
    ],
)
def test_what_a_server_says_itself_is_an_error_too(status: int, body: Any, kind: type[WTBError], words: str) -> None:
    response = httpx.Response(status, headers={"Content-Type": "application/problem+json"}, content=json.dumps(body))
    with pytest.raises(kind) as error:
        check("http://there", response)
    assert str(error.value) == words


def test_a_page_of_something_else_is_no_answer() -> None:
    with pytest.raises(ServerError, match=sentence("responded with {}, unlike `wtb serve`", "HTTP 404 Not Found")):
        check("http://there", httpx.Response(404, text="<html>nginx</html>"))


@pytest.mark.parametrize(
    ("server", "own", "expected"),
    [
        ("1.4.0", "1.4.9", None),
        ("1.5.0", "1.4.9", sentence("what is new there is not known here")),
        ("1.3.2", "1.4.0", sentence("it may not know all that is asked")),
    ],
)
def test_another_minor_version_is_told(server: str, own: str, expected: str | None) -> None:
    warning = check_version("http://there", server, own)
    assert warning is None if expected is None else warning is not None and expected in warning


@pytest.mark.parametrize("server", ["2.0.0", "0.9.1"])
def test_another_major_version_is_refused_with_what_to_do(server: str) -> None:
    with pytest.raises(ServerError, match=rf"pip install 'workflow-test-bench\[client\]=={server[0]}\.\*'"):
        check_version("http://there", server, "1.4.0")


class Scripted:
    """A server that answers as it is told, one status after the other, and notes what it was asked."""

    def __init__(self, version: str = __version__) -> None:
        self.statuses: list[int] = []
        self.requests: list[tuple[str, str | None]] = []
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                health = self.path.endswith("/health")
                self._answer(200 if health else outer._next(self), {"version": version, "sweeps": []})

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(outer._next(self), {"sweep": "s", "breakpoints": []})

            def _answer(self, status: int, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status == 202:
                    self.send_header("Location", "/api/v1/operations/o1")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _next(self, request: BaseHTTPRequestHandler) -> int:
        self.requests.append((request.command, request.headers[KEY]))
        self.paths.append(request.path)
        return self.statuses.pop(0) if self.statuses else 200

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    monkeypatch.setattr(requests, "FIRST_PAUSE_S", 0.0)
    server = Scripted()
    yield server
    server.close()


@pytest.fixture
def server(scripted: Scripted) -> Iterator[Server]:
    with closing(Server(scripted.url, token="any")) as client:
        yield client


@pytest.mark.parametrize("status", [502, 503, 504])
def test_what_reads_is_asked_again_while_the_server_is_away(scripted: Scripted, server: Server, status: int) -> None:
    scripted.statuses = [status, status]
    assert server.call(list_sweeps) == []
    assert len(scripted.requests) == 3


def test_what_takes_long_is_asked_for_until_it_is_there(scripted: Scripted, server: Server) -> None:
    scripted.statuses = [202, 202, 200]
    assert server.call(list_sweeps) == []
    first, *later = scripted.paths
    assert first.startswith("/api/v1/sweeps")
    assert later == ["/api/v1/operations/o1/result?wait=20"] * 2


def test_it_is_not_asked_for_ever(scripted: Scripted, server: Server) -> None:
    scripted.statuses = [503] * 100
    with pytest.raises(ServerError):
        server.call(list_sweeps)
    assert len(scripted.requests) == requests.ATTEMPTS


def test_what_changes_something_is_not_sent_again_to_a_server_that_does_not_know_its_key(
    scripted: Scripted, server: Server
) -> None:
    scripted.statuses = [503]
    with pytest.raises(ServerError):
        server.call(set_breakpoints, "s", clear=True)
    ((method, key),) = scripted.requests
    assert method == "POST"
    assert key


def test_a_server_that_is_not_there_is_told(scripted: Scripted) -> None:
    with pytest.raises(ServerError, match=r"cannot be reached .*check that `wtb serve` runs there"):
        Server("http://127.0.0.1:9", token="any").call(list_sweeps)


def test_a_server_of_another_version_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    major, minor, *_ = __version__.split(".")
    other, warnings = Scripted(f"{major}.{int(minor) + 1}.0"), list[str]()
    with closing(Server(other.url, token="any", warn=warnings.append)) as server:
        server.call(list_sweeps)
        server.call(list_sweeps)
    other.close()
    (line,) = warnings
    assert sentence("what is new there is not known here") in line


def test_no_request_follows_where_the_major_version_is_another() -> None:
    other = Scripted("999.0.0")
    with (
        closing(Server(other.url, token="any")) as server,
        pytest.raises(ServerError, match=sentence("which are incompatible")),
    ):
        server.call(set_breakpoints, "s", clear=True)
    other.close()
    assert other.requests == []


@pytest.mark.parametrize(
    "url", ["bench.example.org", "ftp://there", "http://", "http://ann:secret@there", "http://x?y=1"]
)
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"expected a URL|has a password or arguments"):
        Server(url, token="any")


# Streams


def test_a_message_that_was_cut_off_is_forgotten_and_asked_for_again() -> None:
    stream = Stream("s", Filter(), None)
    first = [
        *stream.read_messages(["retry: 50", "", "id: 0-1", 'data: {"events": [{"id": 1}]}', "", "id: 0-2", "data: {"])
    ]
    assert [message and message.id for message in first] == ["0-1"]
    assert stream.request().headers["Last-Event-ID"] == "0-1"
    repeat = [*stream.read_messages(["id: 0-2", 'data: {"events": [{"id": 2}]}', "", ": nothing new"])]
    assert [message and message.events for message in repeat] == [[{"id": 2}], None]


def test_lines_end_at_line_feeds_alone() -> None:
    text = 'data: {"x": "\u2028 \x85 \x0b"}\n\nid: ä\n'.encode()
    lines = Lines()
    cut = [line for at in range(len(text)) for line in lines.add(text[at : at + 1])]
    assert cut == ['data: {"x": "\u2028 \x85 \x0b"}', "", "id: ä"]


def test_a_stream_ends_where_the_server_refuses_and_continues_where_it_is_away() -> None:
    stream = Stream("s", Filter(), None)
    assert stream.pause("http://there", httpx.ConnectError("refused")) > 0
    assert stream.pause("http://there", httpx.Response(503)) > 0
    refusal = problem_of(NotFound("there is no sweep 's'"))
    response = httpx.Response(404, headers={"Content-Type": refusal.media_type}, content=refusal.body)
    with pytest.raises(NotFound, match=sentence("there is no sweep {}", "'s'")):
        stream.pause("http://there", response)


def test_the_content_of_a_file_is_no_document() -> None:
    route = next(route for route in ROUTES if route.name == "files.read")
    assert list(result_of(route, httpx.Response(200, content=b"\xff{"))) == [b"\xff{"]
