"""How messages are sent, over both doors.

Source: the HTML standard, "Server-sent events" (event streams); RFC 6455 for WebSocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from http import HTTPStatus

from fastapi import WebSocket
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect

from wtb.core.errors import WTBError
from wtb.hosting.access.rates import Rates
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, Message

RECONNECT = b"retry: 1000\n\n"  # after so many milliseconds the client comes again
COMMENT = b": nothing new\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second is for nginx
_SERVICE_RESTART = 1012  # the client may connect again at once


def sent(messages: AsyncGenerator[Message | None, None]) -> StreamingResponse:
    """Return the response that sends messages as server-sent events, for as long as they come."""
    return StreamingResponse(_as_events(messages), media_type="text/event-stream", headers=HEADERS)


def full() -> Problem:
    """Return what somebody is told where too many follow."""
    detail = f"{MOST_SUBSCRIBERS} streams are open already, which is the limit; try again later"
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "10"})


async def _as_events(messages: AsyncGenerator[Message | None, None]) -> AsyncIterator[bytes]:
    yield RECONNECT
    with suppress(WTBError):  # the database is out of reach: the client comes again, and is told so
        async with aclosing(messages):
            async for message in messages:
                yield COMMENT if message is None else b"id: %b\ndata: %b\n\n" % (message.id.encode(), message.text)


async def send(websocket: WebSocket, messages: AsyncGenerator[Message | None, None]) -> None:
    """Send messages over a WebSocket for as long as they come, then close it."""
    with suppress(WebSocketDisconnect):
        with suppress(WTBError):  # as above
            async with aclosing(messages):
                async for message in messages:
                    if message is not None:  # pings of the protocol keep the connection
                        await websocket.send_text(message.text.decode())
        await websocket.close(_SERVICE_RESTART)


async def received(websocket: WebSocket, rates: Rates, who: str | None) -> AsyncIterator[str]:
    """Yield what a client says over a WebSocket until it goes, no faster than it may ask anything.

    Args:
        websocket: It; what comes next is read when what came before was taken.
        rates: How often somebody may ask.
        who: Who asks; None for whoever may ask as often as they like.

    Yields:
        Texts; of a message that is none an empty one.
    """
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        while who is not None and (wait_s := rates.take(who)):
            await asyncio.sleep(wait_s)
        yield message.get("text") or ""
