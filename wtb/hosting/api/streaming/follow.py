"""The requests that stay open: events of a sweep as server-sent events, and the same messages over a WebSocket.

Source: the HTML standard, "Server-sent events" (event streams and `Last-Event-ID`); RFC 6455 for WebSocket.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket
from starlette.responses import Response, StreamingResponse
from starlette.websockets import WebSocketDisconnect

from wtb.core.errors import WTBError
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, Message, Streams, read_position
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.log import Selection, select_events
from wtb.operations.registry import Permission

PATH = f"{PREFIX}/sweeps/{{ref}}/events"
_RECONNECT = b"retry: 1000\n\n"  # after so many milliseconds the client comes again
_COMMENT = b": nothing new\n\n"
_SERVICE_RESTART = 1012  # the client may connect again at once

After = Annotated[
    str | None, Query(description="The id of the last message that was seen, or `now`; by default from the beginning.")
]
MaxBehind = Annotated[
    int | None,
    Query(ge=1, description="How many events may be outstanding before they are left out for a `reset`."),
]


@dataclass
class _Wanted:
    """Which events a request asks for, as FastAPI reads it out of the query."""

    severity: Annotated[str, Query(description="The least that is sent: debug, info, warning or error.")] = "debug"
    kinds: Annotated[tuple[str, ...], Query(description="What their kinds begin with; by default all.")] = ()
    cases: Annotated[bool, Query(description="Name the case of each, and the variants of its combination.")] = False
    ends: Annotated[bool, Query(description="Those, too, that tell whether there is more to come.")] = False

    def selection(self, context: Context, ref: str) -> Selection:
        """Return which events of a sweep that is. Raises InputError."""
        return select_events(context, ref, severity=self.severity, kinds=self.kinds, cases=self.cases, ends=self.ends)


Wanted = Annotated[_Wanted, Depends()]


def router(context: Context, streams: Streams) -> APIRouter:
    """Return both requests.

    Args:
        context: Where the sweeps are.
        streams: The server's streams.
    """
    routes = APIRouter()

    async def selected(identity: Identity, ref: str, wanted: _Wanted) -> Selection:
        mine = context.acting_as(identity, Permission.read)
        return await run_quickly(wanted.selection, mine, ref)

    @routes.get(PATH, summary="Follow the events of a sweep.", tags=["sweeps"], response_model=None)
    async def events(
        request: Request,
        ref: str,
        wanted: Wanted,
        after: After = None,
        max_behind: MaxBehind = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        identity: Identity = request.state.identity
        if refusal := identity.refusal(Permission.read):
            return Problem(HTTPStatus.FORBIDDEN, refusal)
        position = read_position(last_event_id or after)
        selection = await selected(identity, ref, wanted)
        if streams.followers >= MOST_SUBSCRIBERS:
            return _full()
        messages = streams.follow(selection, position, max_behind, identity.digest)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second is for nginx
        return StreamingResponse(_as_events(messages), media_type="text/event-stream", headers=headers)

    @routes.websocket(PATH)
    async def socket(
        websocket: WebSocket,
        ref: str,
        wanted: Wanted,
        after: After = None,
        max_behind: MaxBehind = None,
    ) -> None:
        identity: Identity = websocket.state.identity
        if refusal := identity.refusal(Permission.read):
            await websocket.send_denial_response(Problem(HTTPStatus.FORBIDDEN, refusal))
            return
        position = read_position(after)
        selection = await selected(identity, ref, wanted)
        if streams.followers >= MOST_SUBSCRIBERS:
            await websocket.send_denial_response(_full())
            return
        await websocket.accept()
        messages = streams.follow(selection, position, max_behind, identity.digest)
        sending = asyncio.create_task(_send(websocket, messages))
        try:
            async for _ in websocket.iter_bytes():
                pass  # nothing that a follower says is of interest, but that it goes
        finally:
            sending.cancel()

    return routes


def _full() -> Problem:
    detail = f"{MOST_SUBSCRIBERS} streams are open already, which is the limit; try again later"
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "10"})


async def _as_events(messages: AsyncGenerator[Message | None, None]) -> AsyncIterator[bytes]:
    yield _RECONNECT
    with suppress(WTBError):  # the database is out of reach: the client comes again, and is told so
        async with aclosing(messages):
            async for message in messages:
                yield _COMMENT if message is None else b"id: %b\ndata: %b\n\n" % (message.id.encode(), message.text)


async def _send(websocket: WebSocket, messages: AsyncGenerator[Message | None, None]) -> None:
    with suppress(WebSocketDisconnect):
        with suppress(WTBError):  # as above
            async with aclosing(messages):
                async for message in messages:
                    if message is not None:  # pings of the protocol keep the connection
                        await websocket.send_text(message.text.decode())
        await websocket.close(_SERVICE_RESTART)
