"""Connections: how many there may be, and how long they may take to say what they ask.

uvicorn waits for the head of a request for as long as its client keeps the connection, so that a few hundred clients
that say nothing would keep everybody else out. How slowly a body may come is in `guard.py`.
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
    """Return how an application is served.

    Args:
        app: It.
        proxies: Addresses or networks whose word is taken for where a request came from, and whether by TLS.
        stopping_s: Seconds for which requests under way may finish when it ends; None for as long as they take.
    """
    return uvicorn.Config(
        app,
        log_config=None if logging.getLogger().handlers else LOGGING_CONFIG,  # else it would write in its own way
        log_level="warning",
        access_log=False,  # addresses of people and ids of what they looked at
        server_header=False,
        http=Connection,
        backlog=ACCEPTED,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ws_max_size=MOST_FRAME_BYTES,
        ws_per_message_deflate=False,  # each message would be compressed anew for each who follows
        timeout_graceful_shutdown=stopping_s,
        proxy_headers=bool(proxies),  # anybody can send them
        forwarded_allow_ips=list(proxies),
    )


def prepare(listening: socket.socket) -> None:
    """Have connections send at once, and end whose client takes nothing or is gone without a word (on Linux).

    asyncio has connections send at once only if their socket was made for TCP by name. Else the second part of an
    answer waits until the first is acknowledged, which on a connection that is kept takes the client 40 ms.
    """
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREAD_S)


class Connection(H11Protocol):
    """A connection that ends when it asks nothing, or is told at once that there are too many."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for a request, or refuse it."""
        if len(self.connections) >= MOST_CONNECTIONS:
            refused = _Refused()
            transport.set_protocol(refused)
            refused.connection_made(transport)
            return
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take what came, and count how long the rest of a head takes."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong with what is no request."""
        self._refuse(
            Problem(
                HTTPStatus.BAD_REQUEST,
                f"this is no HTTP/1.1 request, or its head is larger than {HEAD_BYTES:,} bytes, which is the limit",
            )
        )

    @property
    def _is_idle(self) -> bool:
        """Whether no request is being answered; a WebSocket has another protocol."""
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
        """Close the connection, and say why where a client has begun to ask and has no answer so far."""
        has_begun = self.conn.their_state is h11.ERROR or self.conn.trailing_data[0]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and has_begun:
            self.transport.write(_as_sent(problem))
        self.transport.close()


class _Refused(asyncio.Protocol):
    """A connection too many: it is told so when it asks, so that it hears it, or after a moment."""

    _open = 0  # of them all

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_told = False
        _Refused._open += 1
        is_one_of_many = _Refused._open > MOST_REFUSED
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
        if self._transport.can_write_eof():  # it is closed when the client has read it: what it still sends is no error
            self._transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        _Refused._open -= 1
        self._end.cancel()


def _as_sent(problem: Problem) -> bytes:
    """Return a response as bytes, after which the connection closes."""
    status = HTTPStatus(problem.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode()]
    lines += [b": ".join(header) for header in (*problem.raw_headers, (b"connection", b"close"))]
    return b"\r\n".join((*lines, b"", bytes(problem.body)))
