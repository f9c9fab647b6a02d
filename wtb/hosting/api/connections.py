"""Limits of connections: their number, and the time until a request has arrived.

uvicorn waits for the head of a request as long as its client keeps the connection, so that a few hundred silent
clients could lock out all others. `guard.py` limits how slowly a body may arrive.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Collection
from http import HTTPStatus
from typing import cast

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.config import LOGGING_CONFIG
from uvicorn.protocols.http.h11_impl import H11Protocol

from wtb.hosting.api.problems import Problem

MOST_CONNECTIONS = 500  # streams are among them
HEAD_BYTES = 16_384  # of a request but its body
HEAD_S = 10.0  # in which all of a request but its body must have come
REFUSED_S = 1.0  # in which a client that is one too many may say what it wants, and is told
MOST_REFUSED = 500  # that may; more are told at once, so that a flood of them takes no memory
MOST_FRAME_BYTES = 65_536  # of a message of a WebSocket: a subscription is shorter
ACCEPTED = 200  # at a time: each takes some kilobytes until it is served or refused
QUEUED = 2_048  # by the system, until they are accepted
UNREAD_S = 60  # what is sent and not taken for so long ends its connection


def server_config(app: FastAPI, *, proxies: Collection[str] = (), stopping_s: int | None = None) -> uvicorn.Config:
    """Return the configuration by which uvicorn serves an application.

    Args:
        app: The application.
        proxies: Trusted proxies, as addresses or networks, whose headers name the client and whether it used TLS.
        stopping_s: Seconds for running requests to finish at the end; None for no limit.
    """
    return uvicorn.Config(
        app,
        log_config=None if logging.getLogger().handlers else LOGGING_CONFIG,  # else it would write in its own way
        log_level="warning",
        access_log=False,  # it would have addresses of people and the ids that they looked at
        server_header=False,
        http=Connection,
        backlog=ACCEPTED,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws_max_size=MOST_FRAME_BYTES,
        ws_per_message_deflate=False,  # each message would be compressed again for each follower
        timeout_graceful_shutdown=stopping_s,
        proxy_headers=bool(proxies),  # clients can forge them
        forwarded_allow_ips=list(proxies),
    )


def prepare(listening: socket.socket) -> None:
    """Let connections send at once, and end those whose client reads nothing or has vanished (on Linux)."""
    # asyncio sets this only for sockets that were created with the protocol TCP. Otherwise the second part of an answer
    # waits until the first is acknowledged, which takes the client of a kept connection 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_S)


class Connection(H11Protocol):
    """A connection that ends if no request arrives in time, or at once if there are too many."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a request, or reject it."""
        if len(self.connections) >= MOST_CONNECTIONS:
            refused = _Refused()
            transport.set_protocol(refused)
            refused.connection_made(transport)
            return
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, and limit the time for the rest of a head."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Respond to bytes that are no request."""
        self._refuse(
            Problem(
                HTTPStatus.BAD_REQUEST,
                f"this is no HTTP/1.1 request, or its head is larger than {HEAD_BYTES:,} bytes, which is the limit",
            )
        )

    @property
    def _is_idle(self) -> bool:
        """True if no request is being served; a WebSocket has another protocol."""
        is_ours = self.transport.get_protocol() is self and not self.transport.is_closing()
        return is_ours and (self.cycle is None or self.cycle.response_complete)

    def _await_head(self) -> None:
        if not self._is_idle:
            self._stop_waiting()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self._is_idle:
            detail = f"the head of a request had not come after {HEAD_S:g} s, which is the limit"
            self._refuse(Problem(HTTPStatus.REQUEST_TIMEOUT, detail))

    def _refuse(self, problem: Problem) -> None:
        """Close the connection, with a response if a request has begun and has no answer so far."""
        has_begun = self.conn.their_state is h11.ERROR or self.conn.trailing_data[0]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and has_begun:
            self.transport.write(_as_sent(problem))
        self.transport.close()


class _Refused(asyncio.Protocol):
    """A connection over the limit: it gets the response when it sends a request, or is closed after a moment."""

    _open = 0  # of them all

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_told = False
        _Refused._open += 1
        is_one_of_many = _Refused._open > MOST_REFUSED
        # A flood of connections must not take memory while each waits for its request.
        if is_one_of_many:
            self._tell()
        patience_s = 0.0 if is_one_of_many else REFUSED_S
        self._end = asyncio.get_running_loop().call_later(patience_s, self._transport.close)

    def data_received(self, data: bytes) -> None:
        if not self._is_told:
            self._tell()

    def _tell(self) -> None:
        self._is_told = True
        detail = f"there are {MOST_CONNECTIONS} connections, which is the limit; try again in a moment"
        self._transport.write(_as_sent(Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "1"})))
        # Only half closed: a full close while the client still sends would reset the connection before it has read
        # this.
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        _Refused._open -= 1
        self._end.cancel()


def _as_sent(problem: Problem) -> bytes:
    """Return a response as bytes, which closes the connection."""
    status = HTTPStatus(problem.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
    lines += [b": ".join(header) for header in (*problem.raw_headers, (b"connection", b"close"))]
    return b"\r\n".join((*lines, b"", bytes(problem.body)))
