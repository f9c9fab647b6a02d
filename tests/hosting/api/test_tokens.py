"""A token permits its scopes until it expires or is revoked, and no more."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa
from anyio.to_thread import current_default_thread_limiter, run_sync
from starlette.testclient import TestClient
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.hosting.api.serving import HEADERS, Server, messages_of, serving_a_sweep
from tests.support.documents import check
from tests.support.prose import sentence
from tests.support.waiting import until_async
from wtb.core.errors import ConflictError, InputError
from wtb.features.access.operations import create_token, list_tokens, revoke_token
from wtb.hosting.api.app import make_app
from wtb.hosting.api.identities import Identities
from wtb.hosting.api.routes import PREFIX, ROUTES
from wtb.operations.context import Context
from wtb.operations.registry import Permission
from wtb.store.access import users as store
from wtb.store.tables.schema import idempotency_keys


def test_a_token_is_kept_by_its_digest_alone(context: Context) -> None:
    token = create_token(context, "nightly", scopes=["steer", "read"], expires_s=60)
    assert token["scopes"] == ["read", "steer"]
    assert (token["state"], token["created_by"]) == ("active", "ann")
    secret = token["token"].removeprefix("wtb_")
    assert len(secret) >= 27, "160 bits"
    (row,) = store.list_tokens(context.database)
    assert secret not in repr(row)
    (listed,) = list_tokens(context)
    assert listed == {key: field for key, field in token.items() if key != "token"}


def test_a_token_that_is_made_with_a_key_is_kept_nowhere_and_shown_once(context: Context) -> None:
    app = make_app(context, token="of-the-operator", hosts=["testserver"])
    headers = {"Authorization": "Bearer of-the-operator", "Idempotency-Key": "k"}

    def post_token(name: str) -> Any:
        return client.post(f"{PREFIX}/tokens", json={"name": name}, headers=headers)

    with TestClient(app) as client:
        created, repeat = post_token("nightly"), post_token("nightly")
        headers["Idempotency-Key"] = "of one that is refused"
        refused = post_token("nightly")
        assert post_token("nightly").json() == refused.json(), "a refusal has no secret"
    assert created.status_code == 200
    assert repeat.status_code == 409
    assert sentence("shown only once. If it did not arrive, revoke") in repeat.json()["detail"]
    bodies = context.database.scalars(sa.select(idempotency_keys.c.body))
    assert "wtb_" not in repr(bodies)
    assert [row.name for row in store.list_tokens(context.database)] == ["nightly"]


def test_no_two_tokens_are_alike(context: Context) -> None:
    tokens = {create_token(context, f"t{number}")["token"] for number in range(100)}
    assert len(tokens) == 100
    with pytest.raises(ConflictError, match=sentence("there is, or was, a token {}", "'t1'")):
        create_token(context, "t1")
    revoke_token(context, "t1")
    with pytest.raises(ConflictError):
        create_token(context, "t1")


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("", {}, "name is empty"),
        ("a b", {}, sentence("cannot be the name of a token")),
        ("a" * 65, {}, sentence("cannot be the name of a token")),
        ("a", {"scopes": []}, sentence("there is no scope")),
        ("a", {"scopes": ["raed"]}, sentence("{} is not a scope", "'raed'") + sentence("; did you mean '{}'", "read")),
        ("a", {"scopes": "read"}, sentence("{} is {}; expected a list", "scopes", "'read'")),
        ("a", {"expires_s": -1}, "expires_s is -1"),
    ],
)
def test_what_is_no_token_is_refused(context: Context, name: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        create_token(context, name, **more)
    assert list_tokens(context) == []


def test_a_token_that_is_of_no_more_use_is_nobodys(context: Context) -> None:
    for name, expires_s in (("revoked", None), ("expired", 0), ("lasting", 3600)):
        create_token(context, name, expires_s=expires_s)
    first = revoke_token(context, "revoked")
    assert revoke_token(context, "revoked") == first, "it stays revoked since then"
    with pytest.raises(
        InputError, match=sentence("there is no token {}", "'lastin'") + sentence("; did you mean '{}'", "lasting")
    ):
        revoke_token(context, "lastin")
    digests = {row.name: row.digest for row in store.list_tokens(context.database)}
    assert {token["name"]: token["state"] for token in list_tokens(context)} == {
        "revoked": "revoked",
        "expired": "expired",
        "lasting": "active",
    }
    assert {name for name, digest in digests.items() if store.use_token(context.database, digest)} == {"lasting"}
    assert store.active_digests(context.database, digests.values()) == {digests["lasting"]}


def test_when_a_token_was_used_is_kept_to_the_minute(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    create_token(context, "ann")
    (row,) = store.list_tokens(context.database)
    assert row.used_at is None
    store.use_token(context.database, row.digest)
    (used,) = store.list_tokens(context.database)
    assert used.used_at is not None
    store.use_token(context.database, row.digest)
    assert store.list_tokens(context.database) == [used], "no second write within a minute"
    monkeypatch.setattr(store, "USED_S", -1)
    store.use_token(context.database, row.digest)
    (later,) = store.list_tokens(context.database)
    assert later.used_at is not None
    assert later.used_at > used.used_at


def test_who_asks_is_known_also_while_operations_take_every_thread(context: Context) -> None:
    token = create_token(context, "ann")
    ends = threading.Event()

    async def ask_while_busy() -> str | None:
        current_default_thread_limiter().total_tokens = 1
        busy = asyncio.create_task(run_sync(ends.wait))
        try:
            async with asyncio.timeout(30):
                await until_async(lambda: current_default_thread_limiter().borrowed_tokens, "the thread to be taken")
                identity = await Identities(context, "the operator's").find(f"Bearer {token['token']}")
            return None if identity is None else identity.name
        finally:
            ends.set()
            await busy

    assert asyncio.run(ask_while_busy()) == "ann"


# Over HTTP


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_a_sweep(tmp_path_factory.mktemp("tokens"), "--break", "B", check=1) as server:
        yield server


def token_of(server: Server, name: str, *options: str) -> dict[str, str]:
    """Make a token by the command, and return the header that sends it."""
    token = server.project.inside("admin", "token", "create", name, *options, "--format", "json", check=0).json
    check("token", token)
    return {"Authorization": f"Bearer {token['token']}"}


def ask(server: Server, method: str, path: str, headers: dict[str, str], body: Any = None) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        text = None if body is None else json.dumps(body)
        connection.request(method, PREFIX + path, text, {**headers, "Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def audit(server: Server, by: str) -> Any:
    listing = server.project.inside("admin", "audit", "list", "--by", by, "--format", "json", check=0)
    return listing.json["audit"]


def test_each_request_takes_the_scope_of_its_operation(server: Server) -> None:
    """With a token for each scope: what it lacks is forbidden, whether the thing exists or not."""
    headers = {scope: token_of(server, f"only-{scope}", "--scope", scope) for scope in Permission}
    for route in ROUTES:
        path = route.path
        for name in ("ref", "before", "after", "a", "b", "name", "case"):
            path = path.replace(f"{{{name}}}", "nothing")
        for scope, header in headers.items():
            status, answer = ask(server, route.method, path, header, {} if route.method == "POST" else None)
            if scope is route.needs:
                assert status in (200, 400, 404), (route, answer)
            else:
                assert status == 403, (route, scope)
                assert sentence("may {}; this takes the scope {}", scope, route.needs) in answer["detail"]
    for path in ("/sweeps/first/events", "/stream?subscribe=1"):
        assert ask(server, "GET", path, headers[Permission.steer])[0] == 403
    refused = {row["operation"]: (row["outcome"], row["token"], row["error"]) for row in audit(server, "only-read")}
    assert refused.keys() == {route.name for route in ROUTES if route.needs is not Permission.read}
    assert refused["sweeps.pause"][:2] == ("failed", "only-read")
    assert sentence("this takes the scope {}", "steer") in refused["sweeps.pause"][2]


def test_a_token_of_no_use_is_in_the_audit_log(server: Server) -> None:
    assert ask(server, "GET", "/sweeps", {"Authorization": "Bearer wtb_made-up"})[0] == 401
    rows = audit(server, "unknown")
    assert (rows[0]["operation"], rows[0]["outcome"], rows[0]["address"]) == ("sign-in", "failed", "127.0.0.1")
    assert "made-up" not in str(rows)


def test_what_a_revoked_token_has_open_ends_within_seconds_and_others_continue(server: Server) -> None:
    cut, valid = token_of(server, "cut"), token_of(server, "kept")
    url = f"ws://127.0.0.1:{server.port}{PREFIX}/sweeps/first/events"
    with (
        server.open("/sweeps/first/events", cut) as stream,
        connect(f"ws://127.0.0.1:{server.port}{PREFIX}/stream", additional_headers=cut) as of_nothing,
        connect(url, additional_headers=cut) as socket,
        connect(url, additional_headers=valid) as other,
    ):
        messages = messages_of(stream)
        assert next(messages)[1]["events"]
        assert json.loads(socket.recv(timeout=20)) == json.loads(other.recv(timeout=20))
        assert server.project.inside("admin", "token", "revoke", "cut", check=0).stdout == "token cut: revoked\n"
        assert list(messages) == [], "it ends"
        for ended in (socket, of_nothing):
            with pytest.raises(ConnectionClosed):
                ended.recv(timeout=20)
        with pytest.raises(TimeoutError):
            other.recv(timeout=0.5)
    assert ask(server, "GET", "/sweeps", cut)[0] == 401
    assert ask(server, "GET", "/sweeps", valid)[0] == 200


def test_revocation_ends_a_stream_within_a_second(server: Server) -> None:
    """The quickest of three: the machine may be busy with something else."""
    took = []
    for number in range(3):
        token = token_of(server, f"cut-{number}")
        with server.open("/sweeps/first/events", token) as stream:
            messages = messages_of(stream)
            next(messages)
            began = time.monotonic()
            assert ask(server, "POST", f"/tokens/cut-{number}/revoke", HEADERS, {})[0] == 200
            assert list(messages) == []
            took.append(time.monotonic() - began)
    assert min(took) < 1


def test_a_stream_ends_where_the_roles_of_its_user_do(server: Server) -> None:
    run = server.project.inside
    run("admin", "user", "create", "eve", check=0)
    run("admin", "team", "create", "readers", check=0)
    run("admin", "team", "change", "readers", "--add", "eve", check=0)
    run("admin", "access", "grant", "viewer", "--team", "readers", check=0)
    token, other_token = token_of(server, "of-eve", "--user", "eve"), token_of(server, "of-nobody")
    with (
        server.open("/sweeps/first/events", token) as stream,
        server.open("/sweeps/first/events", other_token) as other,
    ):
        messages, other_messages = messages_of(stream), messages_of(other)
        assert next(messages) == next(other_messages)
        run("admin", "access", "grant", "maintainer", "--team", "readers", check=0)
        run("admin", "team", "change", "readers", "--remove", "eve", check=0)
        assert list(messages) == []
        sweep = ask(server, "GET", "/sweeps/first", other_token)[1]["sweep"]["id"]
        assert ask(server, "POST", f"/sweeps/{sweep}/breakpoints", HEADERS, {"add": ["A"]})[0] == 200
        assert next(other_messages)[1]["events"], "it goes on"
    assert ask(server, "GET", "/sweeps", token)[0] == 403


def test_a_token_that_expires_is_of_no_more_use(server: Server) -> None:
    header = token_of(server, "short", "--expires", "5s")
    with server.open("/sweeps/first/events", header) as stream:
        messages = messages_of(stream)
        assert next(messages)[1]["events"]
        assert list(messages) == [], "what it has open ends, too"
    assert ask(server, "GET", "/sweeps", header)[0] == 401


def test_tokens_are_listed_without_themselves(server: Server) -> None:
    header = token_of(server, "listed")
    listed = server.project.inside("admin", "token", "list", "--format", "json", check=0).json
    check("tokens", listed)
    assert "wtb_" not in json.dumps(listed)
    assert listed["tokens"][0]["name"] == "listed"
    over_http = ask(server, "GET", "/tokens", header)[1]["tokens"]
    assert [token["name"] for token in over_http] == [token["name"] for token in listed["tokens"]]
    stdout = server.project.inside("admin", "token", "list", check=0).stdout
    assert "listed" in stdout
    assert max(map(len, stdout.splitlines())) <= 80


def test_a_token_is_printed_once_and_nothing_else_with_it(server: Server) -> None:
    output = server.project.inside(
        "admin", "token", "create", "printed", "--scope", "read", "--expires", "30d", check=0
    )
    assert output.stdout.startswith("wtb_")
    assert len(output.stdout.split()) == 1
    assert "may read, until" in output.stderr
    assert "wtb_" not in output.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("create", "a", "--scope", "everything"), sentence("{} is not a scope", "'everything'")),
        (("create", "a", "--scope", "read,"), sentence("{} is empty; expected text", "scopes[1]") + " (--scope)"),
        (
            ("create", "a", "--expires", "soon"),
            sentence("{} is not a time from now on; expected one such as 12h or 30d", "'soon'") + " (--expires)",
        ),
        (("revoke", "nobody"), sentence("there is no token {}", "'nobody'")),
    ],
)
def test_what_is_wrong_with_a_command_is_told(server: Server, args: tuple[str, ...], words: str) -> None:
    assert words in server.project.inside("admin", "token", *args, check=2).output
