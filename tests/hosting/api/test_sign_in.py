"""A browser that is signed in asks by a cookie, and no page but the server's own can ask by it."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from tests.hosting.api.serving import TOKEN, Server, messages_of, serving_a_sweep
from tests.support.prose import sentence
from wtb.hosting.api import cookies, guard
from wtb.hosting.api.guard import OneTimeCode
from wtb.hosting.api.routes import PREFIX
from wtb.operations.identity import digest_of
from wtb.store.access import users as store
from wtb.store.access.users import NewSignIn
from wtb.store.database import Database


@dataclass
class Visitor:
    """A browser, as far as cookies go."""

    server: Server
    cookie: str | None = None
    csrf: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def ask(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
        """Send a request as a page of the server does; a header that is None is left out."""
        defaults = {"Content-Type": "application/json", "Origin": self.origin, "X-CSRF-Token": self.csrf}
        defaults |= {"Cookie": self.cookie} | {name.replace("_", "-"): header for name, header in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)) as connection:
            sent = {name: header for name, header in defaults.items() if header is not None}
            connection.request(method, PREFIX + path, None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            self.headers = {name.lower(): header for name, header in response.getheaders()}
            text = response.read()
        if cookie := self.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return response.status, json.loads(text) if text else None

    def sign_in(self, **credentials: str) -> Visitor:
        status, signed = self.ask("POST", "/sign-in", credentials)
        assert status == 200, signed
        self.csrf = signed["csrf"]
        return self


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_a_sweep(tmp_path_factory.mktemp("sign-in"), "--break", "B", check=1) as server:
        yield server


@pytest.fixture
def visitor(server: Server) -> Visitor:
    return Visitor(server)


def token_of(server: Server, name: str, scope: str = "read,steer") -> str:
    return server.project.inside("admin", "token", "create", name, "--scope", scope, check=0).stdout.strip()


def test_a_code_is_of_use_once_and_for_ten_minutes() -> None:
    now = [0.0]
    code = OneTimeCode(lambda: now[0])
    assert not code.take("")
    first = code.issue()
    assert len(first) >= 27, "160 bits"
    assert not code.take("wrong")
    assert code.take(first)
    assert not code.take(first)
    old, second = code.issue(), code.issue()
    assert not code.take(old)
    now[0] = guard.LASTS_S + 1
    assert not code.take(second)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("https", "__Host-wtb=v; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"),
        ("http", "wtb-8765=v; Path=/" + sentence("; Max-Age={}; HttpOnly; SameSite={}", 60, "Strict")),
    ],
)
def test_a_cookie_is_for_this_server_alone_and_out_of_reach_of_scripts(scheme: str, expected: str) -> None:
    scope = {"type": "http", "scheme": scheme, "server": ("127.0.0.1", 8765), "headers": []}
    assert cookies.set_cookie(scope, "v", 60) == expected
    scope["headers"] = [(b"cookie", f"other=1; {expected.partition(';')[0]}".encode())]
    assert cookies.cookie_of(scope) == "v"


def test_the_code_that_is_printed_signs_the_operator_in_once(server: Server, visitor: Visitor) -> None:
    assert server.running is not None
    code = re.findall(r"#code=(\S+)", server.running.stderr)[-1]
    assert visitor.ask("POST", "/sign-in", {"code": code[:-1]})[0] == 401
    visitor.sign_in(code=code)
    assert visitor.ask("GET", "/sign-in")[1]["name"] is None
    assert visitor.ask("GET", "/tokens")[0] == 200
    assert Visitor(server).ask("POST", "/sign-in", {"code": code})[0] == 401
    audit = server.project.inside("admin", "audit", "list", "--by", "unknown", "--format", "json", check=0).json[
        "audit"
    ]
    assert {(row["operation"], row["outcome"], row["via"]) for row in audit} >= {
        ("sign-in", "failed", f"POST {PREFIX}/sign-in")
    }
    assert code[:-1] not in str(audit)


def test_who_is_signed_in_by_a_token_may_do_what_it_says_and_the_cookie_is_kept_by_its_digest(
    server: Server, visitor: Visitor
) -> None:
    visitor.sign_in(token=token_of(server, "ann", "read"))
    assert visitor.headers["cache-control"] == "no-store"
    assert visitor.ask("GET", "/sign-in")[1] == {
        "name": "ann",
        "scopes": ["read"],
        "csrf": visitor.csrf,
        "provider": None,
        "runs": False,
    }
    assert visitor.ask("GET", "/sweeps")[0] == 200
    status, problem = visitor.ask("POST", "/sweeps/first/pause", {})
    assert (status, sentence("this takes the scope {}", "steer") in problem["detail"]) == (403, True)
    cookie = str(visitor.cookie).partition("=")[2]
    rows = server.project.query("SELECT * FROM sign_ins")
    assert cookie not in repr(rows)
    assert digest_of(cookie) in repr(rows)


def test_what_browsers_do_is_recorded_under_the_name_of_the_token(server: Server, visitor: Visitor) -> None:
    visitor.sign_in(token=token_of(server, "bob"))
    sweep = visitor.ask("GET", "/sweeps/first")[1]["sweep"]["id"]
    assert visitor.ask("POST", f"/sweeps/{sweep}/breakpoints", {"add": ["C"]})[0] == 200
    lines = server.project.inside("log", sweep, "--kind", "sweep", "--format", "json", check=0).stdout.splitlines()
    assert json.loads(lines[-1])["data"]["by"] == "bob"
    assert visitor.ask("DELETE", "/sign-in")[0] == 204
    audit = server.project.inside("admin", "audit", "list", "--by", "bob", "--format", "json", check=0).json["audit"]
    assert [row["operation"] for row in audit] == ["sign-out", "breakpoints.set", "sign-in"]
    assert {(row["address"], row["token"]) for row in audit} == {("127.0.0.1", "bob")}
    assert audit[1]["via"] == f"POST {PREFIX}/sweeps/{{ref}}/breakpoints"
    assert audit[1]["arguments"] == {"ref": sweep, "add": ["C"]}


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"X_CSRF_Token": None}, sentence("the header {} is missing or wrong", "X-CSRF-Token")),
        ({"X_CSRF_Token": "0" * 64}, sentence("the header {} is missing or wrong", "X-CSRF-Token")),
        ({"X_CSRF_Token": "\u00fc"}, sentence("the header {} is missing or wrong", "X-CSRF-Token")),
        ({"Origin": None}, sentence("the request has a cookie but no header Origin")),
        ({"Origin": "http://127.0.0.1:1"}, sentence("the request is from a page of {}", "http://127.0.0.1:1")),
        ({"Origin": "null"}, sentence("the request is from a page of {}", "null")),
        ({"Origin": "https://evil.example"}, sentence("the request is from a page of {}", "https://evil.example")),
    ],
)
def test_no_other_page_can_change_anything_by_the_cookie(
    server: Server, visitor: Visitor, headers: dict[str, str | None], words: str
) -> None:
    visitor.sign_in(token=TOKEN)
    for method, path in (("POST", "/sweeps/first/pause"), ("DELETE", "/sign-in")):
        status, problem = visitor.ask(method, path, {}, **headers)
        assert (status, words in problem["detail"]) == (403, True), problem
    assert visitor.ask("GET", "/sweeps")[0] == 200, "it is still signed in"


def test_no_other_page_can_read_by_the_cookie_or_sign_somebody_in(server: Server, visitor: Visitor) -> None:
    visitor.sign_in(token=TOKEN)
    assert visitor.ask("GET", "/sweeps", Origin="http://127.0.0.1:1")[0] == 403
    assert Visitor(server).ask("POST", "/sign-in", {"token": TOKEN}, Origin="http://127.0.0.1:1")[0] == 403
    url = f"ws://127.0.0.1:{server.port}{PREFIX}/sweeps/first/events"
    for origin in ("http://127.0.0.1:1", None):
        headers = {"Cookie": str(visitor.cookie), **({"Origin": origin} if origin else {})}
        with pytest.raises(InvalidStatus, match="403"), connect(url, additional_headers=headers):
            pass


def test_a_token_speaks_for_itself_beside_a_cookie(server: Server, visitor: Visitor) -> None:
    visitor.sign_in(token=TOKEN)
    assert visitor.ask("GET", "/sweeps", Authorization="Bearer wrong")[0] == 401
    sent = {"Authorization": f"Bearer {TOKEN}", "Origin": None, "X_CSRF_Token": None}
    assert visitor.ask("POST", "/sweeps/nothing/pause", {}, **sent)[0] == 404


def test_who_has_signed_out_is_nobody_and_their_streams_end(server: Server, visitor: Visitor) -> None:
    other = Visitor(server).sign_in(token=TOKEN)
    visitor.sign_in(token=TOKEN)
    cookie = str(visitor.cookie)
    with server.open("/sweeps/first/events", {"Cookie": cookie}) as stream:
        messages = messages_of(stream)
        assert next(messages)[1]["events"]
        assert visitor.ask("DELETE", "/sign-in")[0] == 204
        assert visitor.headers["set-cookie"].partition(";")[0].endswith("=")
        assert list(messages) == [], "it ends"
    visitor.cookie = cookie
    assert visitor.ask("GET", "/sweeps")[0] == 401
    assert visitor.ask("GET", "/sign-in")[1] == {
        "name": None,
        "scopes": [],
        "csrf": None,
        "provider": None,
        "runs": False,
    }
    assert other.ask("GET", "/sweeps")[0] == 200


def test_a_sign_in_ends_with_its_token_and_so_does_what_it_has_open(server: Server, visitor: Visitor) -> None:
    visitor.sign_in(token=token_of(server, "cut"))
    url = f"ws://127.0.0.1:{server.port}{PREFIX}/sweeps/first/events"
    headers = {"Cookie": str(visitor.cookie), "Origin": visitor.origin}
    with connect(url, additional_headers=headers) as socket:
        assert socket.recv(timeout=20)
        server.project.inside("admin", "token", "revoke", "cut", check=0)
        with pytest.raises(ConnectionClosed):
            list(socket)
    assert visitor.ask("GET", "/sweeps")[0] == 401


def test_the_operators_sign_in_ends_with_the_servers_token(server: Server, visitor: Visitor) -> None:
    visitor.sign_in(token=TOKEN)
    database = Database(f"sqlite:///{server.project.file}")
    sign_in = store.use_sign_in(database, digest_of(str(visitor.cookie).partition("=")[2]))
    assert sign_in is not None
    database.execute(store.sign_ins.update().where(store.sign_ins.c.id == sign_in[0].id).values(source="0" * 64))
    database.close()
    assert visitor.ask("GET", "/sweeps")[0] == 401


# In the database


def test_a_sign_in_ends_when_it_is_not_used_and_at_last_in_any_case(
    prepared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(prepared_url)
    first = store.add_sign_in(database, NewSignIn("operator", "a", "s", "127.0.0.1"))
    assert store.use_sign_in(database, "a") == (first, None)
    assert store.active_sign_ins(database, ["a", "b"]) == {"a"}
    database.execute(store.sign_ins.update().values(used_at=store.sign_ins.c.used_at - 61))
    store.use_sign_in(database, "a")
    second = store.use_sign_in(database, "a")
    assert second is not None
    assert second[0].used_at >= first.used_at, "when it was last used, to the minute"
    database.execute(store.sign_ins.update().values(used_at=store.sign_ins.c.used_at - store.IDLE_S))
    assert store.use_sign_in(database, "a") is None
    monkeypatch.setattr(store, "MOST_S", -1.0)
    store.add_sign_in(database, NewSignIn("operator", "b", "s"))
    assert store.active_sign_ins(database, ["a", "b"]) == set()
    store.add_sign_in(database, NewSignIn("operator", "c", "s"))
    assert database.scalars(store.sa.select(store.sign_ins.c.digest)) == ["c"], "those that are past are removed"
    database.close()
