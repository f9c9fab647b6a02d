"""Requests that stay open: events of a sweep as server-sent events, and the same messages over a WebSocket.

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
from wtb.hosting.api.guard import Rates
from wtb.hosting.api.identities import needing
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, Message, Streams, read_position
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.log import Selection, select_events
from wtb.operations.registry import Permission

RECONNECT = b"retry: 1000\n\n"  # milliseconds until the client reconnects
COMMENT = b": nothing new\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the second is for nginx
_SERVICE_RESTART = 1012  # the client may connect again at once


def sent(messages: AsyncGenerator[Message | None, None]) -> StreamingResponse:
    """Return a response that sends messages as server-sent events, as long as they come."""
    return StreamingResponse(_as_events(messages), media_type="text/event-stream", headers=HEADERS)


def full() -> Problem:
    """Return the response if there are too many followers."""
    detail = f"{MOST_SUBSCRIBERS} streams are open already, which is the limit; try again later"
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "10"})


async def _as_events(messages: AsyncGenerator[Message | None, None]) -> AsyncIterator[bytes]:
    yield RECONNECT
    # The database is out of reach. The client reconnects, and gets the error then: this response has begun.
    with suppress(WTBError):
        async with aclosing(messages):
            async for message in messages:
                yield COMMENT if message is None else b"id: %b\ndata: %b\n\n" % (message.id.encode(), message.text)


async def send(websocket: WebSocket, messages: AsyncGenerator[Message | None, None]) -> None:
    """Send messages over a WebSocket as long as they come, then close it."""
    with suppress(WebSocketDisconnect):
        with suppress(WTBError):  # as above
            async with aclosing(messages):
                async for message in messages:
                    if message is not None:  # pings of the protocol keep the connection
                        await websocket.send_text(message.text.decode())
        await websocket.close(_SERVICE_RESTART)


async def received(websocket: WebSocket, rates: Rates, who: str | None) -> AsyncIterator[str]:
    """Yield the messages of a client over a WebSocket until it disconnects, limited to the rate of requests.

    Args:
        websocket: The WebSocket. The next message is read when the one before was consumed.
        rates: The rates by identity.
        who: The key of the client; None for no limit.

    Yields:
        Texts; an empty one for a binary message.
    """
    while (message := await websocket.receive())["type"] != "websocket.disconnect":
        while who is not None and (wait_s := rates.take(who)):
            await asyncio.sleep(wait_s)
        yield message.get("text") or ""


PATH = f"{PREFIX}/sweeps/{{ref}}/events"

After = Annotated[
    str | None, Query(description="The id of the last message that was seen, or `now`; by default from the beginning.")
]
MaxBehind = Annotated[
    int | None,
    Query(ge=1, description="How many events may be outstanding before they are left out for a `reset`."),
]


@dataclass
class _EventQuery:
    """The requested events, which FastAPI reads from the query."""

    severity: Annotated[str, Query(description="The lowest severity to send: debug, info, warning or error.")] = "debug"
    kinds: Annotated[tuple[str, ...], Query(description="Prefixes of the kinds of events; by default all.")] = ()
    cases: Annotated[bool, Query(description="Name the case of each, and the variants of its combination.")] = False
    ends: Annotated[bool, Query(description="Include events that show whether more events follow.")] = False

    values: Annotated[bool, Query(description="Add what nodes wrote, results, and the arguments of tools.")] = False

    def selection(self, context: Context, ref: str) -> Selection:
        """Return the selection of a sweep's events. Raises InputError."""
        return select_events(
            context,
            ref,
            severity=self.severity,
            kinds=self.kinds,
            cases=self.cases,
            ends=self.ends,
            values=self.values,
        )


EventQuery = Annotated[_EventQuery, Depends()]


def router(context: Context, streams: Streams, rates: Rates) -> APIRouter:
    """Return both routes.

    Args:
        context: The context of sweeps.
        streams: The server's streams.
        rates: The rates of messages by identity.
    """
    routes = APIRouter()

    async def selected(identity: Identity, ref: str, query: _EventQuery) -> Selection:
        mine = context.acting_as(identity, Permission.read)
        return await run_quickly(query.selection, mine, ref)

    @routes.get(
        PATH,
        summary="Follow the events of a sweep.",
        tags=["sweeps"],
        response_model=None,
        dependencies=[needing(Permission.read)],
    )
    async def events(
        request: Request,
        ref: str,
        query: EventQuery,
        after: After = None,
        max_behind: MaxBehind = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        identity: Identity = request.state.identity
        position = read_position(last_event_id or after)
        selection = await selected(identity, ref, query)
        if streams.followers >= MOST_SUBSCRIBERS:
            return full()
        # Before the response begins: events after the client has seen the response must not be left out.
        position = position or await streams.position(selection)
        return sent(streams.follow(selection, position, max_behind, identity.follower))

    @routes.websocket(PATH)
    async def socket(
        websocket: WebSocket,
        ref: str,
        query: EventQuery,
        after: After = None,
        max_behind: MaxBehind = None,
    ) -> None:
        identity: Identity = websocket.state.identity
        if refusal := identity.refusal(Permission.read):
            await websocket.send_denial_response(Problem(HTTPStatus.FORBIDDEN, refusal))
            return
        position = read_position(after)
        selection = await selected(identity, ref, query)
        if streams.followers >= MOST_SUBSCRIBERS:
            await websocket.send_denial_response(full())
            return
        position = position or await streams.position(selection)
        await websocket.accept()
        messages = streams.follow(selection, position, max_behind, identity.follower)
        sending = asyncio.create_task(send(websocket, messages))
        try:
            async for _ in received(websocket, rates, identity.key):
                pass  # nothing that a follower says is of interest, but that it goes
        finally:
            sending.cancel()

    return routes
