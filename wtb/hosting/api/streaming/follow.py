"""The requests that stay open: events of a sweep as server-sent events, and the same messages over a WebSocket.

Source: the HTML standard, "Server-sent events" (event streams and `Last-Event-ID`); RFC 6455 for WebSocket.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request, WebSocket
from starlette.responses import Response

from wtb.hosting.access.rates import Rates
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.sending import full, received, send, sent
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, Streams, read_position
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.log import Selection, select_events
from wtb.operations.registry import Permission

PATH = f"{PREFIX}/sweeps/{{ref}}/events"

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

    values: Annotated[bool, Query(description="Add what nodes wrote, results, and the arguments of tools.")] = False

    def selection(self, context: Context, ref: str) -> Selection:
        """Return which events of a sweep that is. Raises InputError."""
        return select_events(
            context,
            ref,
            severity=self.severity,
            kinds=self.kinds,
            cases=self.cases,
            ends=self.ends,
            values=self.values,
        )


Wanted = Annotated[_Wanted, Depends()]


def router(context: Context, streams: Streams, rates: Rates) -> APIRouter:
    """Return both requests.

    Args:
        context: Where the sweeps are.
        streams: The server's streams.
        rates: How often somebody may ask.
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
            return full()
        position = position or await streams.position(selection)  # so that "now" is not after the answer begins
        return sent(streams.follow(selection, position, max_behind, identity.follower))

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
