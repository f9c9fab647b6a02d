"""One request that stays open for all that a tab or a program follows: events of several sweeps, over both doors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, WebSocket
from starlette.responses import Response

from wtb.hosting.access.rates import Rates
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.sending import full, received, send, sent
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, Streams
from wtb.hosting.api.streaming.subscriptions import Subscription, Subscriptions, read_subscriptions
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Identity
from wtb.operations.inspection.log import Selection, select_events
from wtb.operations.registry import Permission

PATH = f"{PREFIX}/stream"

Subscribe = Annotated[
    list[str],
    Query(
        description="What is followed, each as JSON: its `name`, the `sweep`, and `after`, `max_behind`, `severity`, "
        "`kinds`, `cases` and `ends` as for the events of one sweep."
    ),
]


def router(context: Context, streams: Streams, rates: Rates) -> APIRouter:
    """Return both requests.

    Args:
        context: Where the sweeps are.
        streams: The server's streams.
        rates: How often somebody may ask, by messages, too.
    """
    routes = APIRouter()

    def of(identity: Identity) -> Subscriptions:
        mine = context.acting_as(identity, Permission.read)

        def selection(wanted: Subscription) -> Selection:
            return select_events(
                mine,
                wanted.sweep,
                severity=wanted.severity,
                kinds=wanted.kinds,
                cases=wanted.cases,
                ends=wanted.ends,
                values=wanted.values,
            )

        async def select(wanted: Subscription) -> Selection:
            return await run_quickly(selection, wanted)

        return Subscriptions(streams, select, identity.follower)

    @routes.get(PATH, summary="Follow the events of several sweeps.", tags=["sweeps"], response_model=None)
    async def events(
        request: Request, subscribe: Subscribe, last_event_id: Annotated[str | None, Header()] = None
    ) -> Response:
        identity: Identity = request.state.identity
        if refusal := identity.refusal(Permission.read):
            return Problem(HTTPStatus.FORBIDDEN, refusal)
        wanted = read_subscriptions(subscribe, last_event_id)
        if streams.followers + len(wanted) > MOST_SUBSCRIBERS:
            return full()
        return sent(of(identity).messages(wanted))

    @routes.websocket(PATH)
    async def socket(websocket: WebSocket) -> None:
        identity: Identity = websocket.state.identity
        if refusal := identity.refusal(Permission.read):
            await websocket.send_denial_response(Problem(HTTPStatus.FORBIDDEN, refusal))
            return
        await websocket.accept()
        carried = of(identity)
        sending = asyncio.create_task(send(websocket, carried.messages()))
        taking = asyncio.create_task(_take(received(websocket, rates, identity.key), carried))
        try:
            done, _ = await asyncio.wait((sending, taking), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            sending.cancel()
            taking.cancel()
            carried.close()

    return routes


async def _take(texts: AsyncIterator[str], carried: Subscriptions) -> None:
    """Do what who follows asks, one after the other, until they go."""
    async for text in texts:
        await carried.take(text)
