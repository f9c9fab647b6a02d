"""A bad message over a WebSocket gets a problem or closes its connection, and affects no other client."""

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
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.fuzz import nasty
from tests.hosting.api.serving import HEADERS, TOKEN, answering
from tests.support.tenants import Tenant
from wtb.features.access.operations import create_token
from wtb.hosting.api.app import make_app
from wtb.hosting.api.connections import MOST_FRAME_BYTES
from wtb.hosting.api.guard import Doors, Rates
from wtb.hosting.api.routes import PREFIX
from wtb.store.log import add_event, subject

SEED = 20_261_127
PATIENCE_S = 60  # transactions of others on the same server are waited for, too
TEXT, BINARY, CLOSE, PING = 1, 2, 8, 9
UNREADABLE = "Invalid UTF-8 sequence"  # which uvicorn notes with a traceback, and closes


@contextmanager
def served(tenant: Tenant, faults: pytest.LogCaptureFixture, doors: Doors | None = None) -> Iterator[str]:
    """Run a server that must not log a fault, and yield the address of its sockets."""
    app = make_app(tenant.context, token=TOKEN, hosts=["127.0.0.1"], doors=doors)
    servers = logging.getLogger("uvicorn.error")
    with faults.at_level(logging.WARNING), answering(app) as url:
        servers.addHandler(faults.handler)
        try:
            yield f"ws{url.removeprefix('http')}{PREFIX}"
        finally:
            servers.removeHandler(faults.handler)
    records = [
        record for record in faults.records if record.levelno >= logging.ERROR and UNREADABLE not in record.getMessage()
    ]
    assert not records, [(record.getMessage(), record.exc_text) for record in records[:3]]


def paths(tenant: Tenant) -> tuple[str, str]:
    return f"/sweeps/{tenant.names['sweep']}/events?after=now", "/stream"


def follow(tenant: Tenant, stream: ClientConnection) -> None:
    """Subscribe to the log on a stream, and wait for a written event."""
    if stream.request is not None and stream.request.path.endswith("/stream"):
        stream.send(json.dumps({"subscribe": {"name": "it", "sweep": tenant.names["sweep"], "after": "now"}}))
        until(stream, lambda message: message["subscription"] == "it" and message["message"]["type"] == "subscribed")
    with tenant.context.database.write() as connection:
        add_event(connection, subject(tenant.bench.row.session_id, tenant.names["sweep"]), "sweep.note", {})
    until(stream, lambda message: message.get("message", message)["type"] == "events")


def until(stream: ClientConnection, is_it: Any) -> Any:
    while not is_it(message := json.loads(stream.recv(timeout=PATIENCE_S))):
        pass
    return message


@pytest.mark.parametrize("many", [80, pytest.param(4_000, marks=pytest.mark.slow)])
def test_whatever_a_message_says_the_stream_continues(
    tenant: Tenant, many: int, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(SEED)
    with served(tenant, caplog) as url:
        for path in paths(tenant):
            with connect(url + path, additional_headers=HEADERS) as stream:
                for _ in range(many):
                    message = _message(dice, tenant.names["sweep"])
                    stream.send(message)
                    if path == "/stream" and not _may_be_meant(message):
                        ended = until(stream, lambda reply: reply["message"]["type"] == "ended")
                        assert 400 <= ended["message"]["problem"]["status"] < 500, message
                follow(tenant, stream)


def _message(dice: random.Random, sweep: str) -> str | bytes:
    """Return a message that is no subscription, or a subscription with one error."""
    request: Any = {"subscribe": {"name": "other", "sweep": sweep, "after": "now", "kinds": ["sweep"], "max_behind": 5}}
    match dice.randrange(5):
        case 0:
            return dice.randbytes(dice.choice((0, 1, 200, MOST_FRAME_BYTES)))
        case 1:
            text = str(dice.choice(nasty.TEXTS))
        case 2:
            text = json.dumps(nasty.odd_value(dice))
        case 3:
            text = nasty.mangled(json.dumps(request).encode(), dice).decode(errors="replace")
        case _:
            text = json.dumps(nasty.mutated(request, dice))
    return text.encode(errors="replace")[:MOST_FRAME_BYTES].decode(errors="ignore")


def _may_be_meant(message: str | bytes) -> bool:
    """Return whether a changed message is still a valid subscription, or a valid end of one."""
    with suppress(ValueError, RecursionError):
        request = json.loads(message)
        return isinstance(request, dict) and set(request) in ({"subscribe"}, {"unsubscribe"})
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
    """Open a socket and upgrade it to a WebSocket."""
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
    payload = b'{"subscribe": {"name": "x", "sweep": "x"}}'
    return dice.choice(
        (
            dice.randbytes(100),
            _frame(TEXT, b"\xff\xfe"),
            _frame(TEXT, payload, is_last=False),
            _frame(TEXT, payload, is_last=False) + _frame(TEXT, payload),
            _frame(0, payload),
            _frame(3, payload),
            _frame(11, payload),
            _frame(TEXT, payload, is_masked=False),
            _frame(TEXT, payload, reserved=7),
            _frame(TEXT, payload, size=1 << 40),
            _frame(BINARY, payload, size=(1 << 64) - 1),
            _frame(TEXT, payload)[:-5],
            _frame(PING, b"x" * 126),
            _frame(PING, b"x") * 50,
            _frame(CLOSE, b"\x00"),
            _frame(CLOSE, struct.pack("!H", dice.choice((0, 999, 1005, 1006, 5000)))),
            _frame(CLOSE, b"") + _frame(TEXT, payload),
            nasty.mangled(_frame(TEXT, payload), dice),
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
    """Return a frame by RFC 6455, 5.2, with violations as the arguments set them."""
    size = len(payload) if size is None else size
    length = (size, b"") if size < 126 else (126, struct.pack("!H", size)) if size < 65_536 else (127, None)
    more = struct.pack("!Q", size) if length[1] is None else length[1]
    head = bytes([is_last << 7 | reserved << 4 | opcode, is_masked << 7 | length[0]]) + more
    return head + (bytes(4) if is_masked else b"") + payload


def test_messages_count_as_requests_do(tenant: Tenant, caplog: pytest.LogCaptureFixture) -> None:
    """The server reads a client that exceeds its rate more slowly, without losing messages, and others as before."""
    headers = [{"Authorization": f"Bearer {create_token(tenant.context, name)['token']}"} for name in ("eager", "calm")]
    rates = Rates(per_s=1, burst=5)
    with (
        served(tenant, caplog, Doors(requests=rates)) as url,
        connect(f"{url}/stream", additional_headers=headers[0]) as eager,
        connect(f"{url}/stream", additional_headers=headers[1]) as calm,
    ):
        names = [f"n{number}" for number in range(6)]
        for name in names:
            eager.send(json.dumps({"subscribe": {"name": name, "sweep": "nothing"}}))
        came = [json.loads(eager.recv(timeout=PATIENCE_S))["subscription"] for _ in names[:4]]
        assert rates.take("eager") > 0, "one was for the stream itself"
        calm.send(json.dumps({"subscribe": {"name": "it", "sweep": "nothing"}}))
        assert json.loads(calm.recv(timeout=PATIENCE_S))["subscription"] == "it"
        came += [json.loads(eager.recv(timeout=PATIENCE_S))["subscription"] for _ in names[4:]]
    assert came == names
