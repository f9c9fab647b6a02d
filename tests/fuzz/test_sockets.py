"""What is said over a WebSocket, whatever it is: who says it is told what is wrong or cut off, and nobody else is."""

from __future__ import annotations

import base64
import json
import logging
import os
import random
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.fuzz import nasty
from tests.hosting.api.serving import HEADERS, TOKEN, answering
from tests.support.tenants import Tenant
from wtb.hosting.access.doors import Doors
from wtb.hosting.access.rates import Rates
from wtb.hosting.api.app import make_app
from wtb.hosting.api.connections import MOST_FRAME_BYTES
from wtb.hosting.api.routes import PREFIX
from wtb.operations.administration.tokens import create_token
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.events import add_event, subject

SEED = 20_261_127
PATIENCE_S = 60  # transactions of others on the same server are waited for, too
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
UNREADABLE = "Invalid UTF-8 sequence"  # which uvicorn notes with a traceback, and closes


@pytest.fixture
def tenant(prepared_url: str, tmp_path: Path) -> Iterator[Tenant]:
    database = Database(prepared_url)
    yield Tenant(Context(database, by="ann", files=tmp_path / "files"), tmp_path / "files", "quokka")
    database.close()


@contextmanager
def served(tenant: Tenant, faults: pytest.LogCaptureFixture, doors: Doors | None = None) -> Iterator[str]:
    """A server, which may log no fault. Yields where its sockets are."""
    app = make_app(tenant.context, token=TOKEN, hosts=["127.0.0.1"], doors=doors)
    servers = logging.getLogger("uvicorn.error")
    with faults.at_level(logging.WARNING), answering(app) as url:
        servers.addHandler(faults.handler)
        try:
            yield f"ws{url.removeprefix('http')}{PREFIX}"
        finally:
            servers.removeHandler(faults.handler)
    found = [one for one in faults.records if one.levelno >= logging.ERROR and UNREADABLE not in one.getMessage()]
    assert not found, [(one.getMessage(), one.exc_text) for one in found[:3]]


def paths(tenant: Tenant) -> tuple[str, str]:
    return f"/sweeps/{tenant.names['sweep']}/events?after=now", "/stream"


def follow(tenant: Tenant, stream: ClientConnection) -> None:
    """Have a stream carry the log, and see that what is written comes."""
    if stream.request is not None and stream.request.path.endswith("/stream"):
        stream.send(json.dumps({"subscribe": {"name": "it", "sweep": tenant.names["sweep"], "after": "now"}}))
        until(stream, lambda one: one["subscription"] == "it" and one["message"]["type"] == "subscribed")
    with tenant.context.database.write() as connection:
        add_event(connection, subject(tenant.bench.row.session_id, tenant.names["sweep"]), "sweep.note", {})
    until(stream, lambda one: one.get("message", one)["type"] == "events")


def until(stream: ClientConnection, is_it: Any) -> Any:
    while not is_it(found := json.loads(stream.recv(timeout=PATIENCE_S))):
        pass
    return found


@pytest.mark.parametrize("many", [80, pytest.param(4_000, marks=pytest.mark.slow)])
def test_whatever_a_message_says_the_stream_goes_on(
    tenant: Tenant, many: int, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(SEED)
    with served(tenant, caplog) as url:
        for path in paths(tenant):
            with connect(url + path, additional_headers=HEADERS) as stream:
                for _ in range(many):
                    said = _message(dice, tenant.names["sweep"])
                    stream.send(said)
                    if path == "/stream" and not _may_be_meant(said):
                        ended = until(stream, lambda one: one["message"]["type"] == "ended")
                        assert 400 <= ended["message"]["problem"]["status"] < 500, said
                follow(tenant, stream)


def _message(dice: random.Random, sweep: str) -> str | bytes:
    """Something that is no subscription, or one of which one thing is wrong."""
    asked: Any = {"subscribe": {"name": "other", "sweep": sweep, "after": "now", "kinds": ["sweep"], "max_behind": 5}}
    match dice.randrange(5):
        case 0:
            return dice.randbytes(dice.choice((0, 1, 200, MOST_FRAME_BYTES)))
        case 1:
            text = str(dice.choice(nasty.TEXTS))
        case 2:
            text = json.dumps(nasty.value(dice))
        case 3:
            text = nasty.mangled(json.dumps(asked).encode(), dice).decode(errors="replace")
        case _:
            text = json.dumps(nasty.mutated(asked, dice))
    return text.encode(errors="replace")[:MOST_FRAME_BYTES].decode(errors="ignore")


def _may_be_meant(said: str | bytes) -> bool:
    """Whether a message can be followed, or ends what was, in spite of its change."""
    with suppress(ValueError, RecursionError):
        asked = json.loads(said)
        return isinstance(asked, dict) and set(asked) in ({"subscribe"}, {"unsubscribe"})
    return False


def test_what_is_too_large_ends_its_own_stream_alone(tenant: Tenant, caplog: pytest.LogCaptureFixture) -> None:
    with served(tenant, caplog) as url:
        for path in paths(tenant):
            with (
                connect(url + path, additional_headers=HEADERS) as large,
                connect(url + path, additional_headers=HEADERS) as other,
            ):
                large.send("x" * (MOST_FRAME_BYTES + 1))
                with pytest.raises(ConnectionClosed) as closed:
                    large.recv(timeout=PATIENCE_S)
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1009
                follow(tenant, other)


@pytest.mark.parametrize("many", [60, pytest.param(3_000, marks=pytest.mark.slow)])
def test_frames_that_are_none_end_their_own_stream_alone(
    tenant: Tenant, many: int, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(SEED)
    with served(tenant, caplog) as url:
        for path in paths(tenant):
            with connect(url + path, additional_headers=HEADERS) as other:
                for _ in range(many):
                    with closing(_upgraded(url + path)) as raw, suppress(OSError):
                        raw.sendall(_frames(dice))
                        if dice.random() < 0.5:
                            raw.shutdown(socket.SHUT_WR)
                            while raw.recv(65_536):
                                pass
                follow(tenant, other)


def _upgraded(url: str) -> socket.socket:
    """A socket that has become a WebSocket."""
    place, _, path = url.removeprefix("ws://").partition("/")
    host, _, port = place.partition(":")
    raw = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    key = base64.b64encode(os.urandom(16)).decode()
    raw.sendall(
        f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: Upgrade\r\n"
        f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    assert raw.recv(65_536).startswith(b"HTTP/1.1 101")
    return raw


def _frames(dice: random.Random) -> bytes:
    said = b'{"subscribe": {"name": "x", "sweep": "x"}}'
    return dice.choice(
        (
            dice.randbytes(100),
            _frame(TEXT, b"\xff\xfe"),
            _frame(TEXT, said, is_last=False),
            _frame(TEXT, said, is_last=False) + _frame(TEXT, said),
            _frame(0, said),
            _frame(3, said),
            _frame(11, said),
            _frame(TEXT, said, is_masked=False),
            _frame(TEXT, said, reserved=7),
            _frame(TEXT, said, size=1 << 40),
            _frame(BINARY, said, size=(1 << 64) - 1),
            _frame(TEXT, said)[:-5],
            _frame(PING, b"x" * 126),
            _frame(PING, b"x") * 50,
            _frame(CLOSE, b"\x00"),
            _frame(CLOSE, struct.pack("!H", dice.choice((0, 999, 1005, 1006, 5000)))),
            _frame(CLOSE, b"") + _frame(TEXT, said),
            nasty.mangled(_frame(TEXT, said), dice),
        )
    )


def _frame(
    opcode: int,
    payload: bytes,
    *,
    is_last: bool = True,
    is_masked: bool = True,
    reserved: int = 0,
    size: int | None = None,
) -> bytes:
    """A frame by RFC 6455, 5.2, with what is not allowed where that is asked for."""
    size = len(payload) if size is None else size
    length = (size, b"") if size < 126 else (126, struct.pack("!H", size)) if size < 65_536 else (127, None)
    more = struct.pack("!Q", size) if length[1] is None else length[1]
    head = bytes([is_last << 7 | reserved << 4 | opcode, is_masked << 7 | length[0]]) + more
    return head + (bytes(4) if is_masked else b"") + payload


def test_messages_count_as_requests_do(tenant: Tenant, caplog: pytest.LogCaptureFixture) -> None:
    """Who says more than they may ask is read more slowly, and misses nothing; others are read as before."""
    headers = [{"Authorization": f"Bearer {create_token(tenant.context, name)['token']}"} for name in ("eager", "calm")]
    rates = Rates(per_s=1, burst=5)
    with (
        served(tenant, caplog, Doors(requests=rates)) as url,
        connect(f"{url}/stream", additional_headers=headers[0]) as eager,
        connect(f"{url}/stream", additional_headers=headers[1]) as calm,
    ):
        asked = [f"n{number}" for number in range(6)]
        for name in asked:
            eager.send(json.dumps({"subscribe": {"name": name, "sweep": "nothing"}}))
        came = [json.loads(eager.recv(timeout=PATIENCE_S))["subscription"] for _ in asked[:4]]
        assert rates.take("eager") > 0, "one was for the stream itself"
        calm.send(json.dumps({"subscribe": {"name": "it", "sweep": "nothing"}}))
        assert json.loads(calm.recv(timeout=PATIENCE_S))["subscription"] == "it"
        came += [json.loads(eager.recv(timeout=PATIENCE_S))["subscription"] for _ in asked[4:]]
    assert came == asked
