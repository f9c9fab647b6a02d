"""The stream of a server for programs with an event loop: each connection is awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import httpx

from wtb.hosting.client.answers import Outcome
from wtb.hosting.client.connection import Connection, as_sent, timeouts
from wtb.hosting.client.stream import SILENCE_S, Filter, Lines, Message, Stream


async def messages(connection: Connection, sweep: str, wanted: Filter) -> AsyncGenerator[Message | None, None]:
    """Yield the messages of the log of a sweep, for ever, whatever breaks; see `Server.messages`.

    Args:
        connection: The server, whose version is known.
        sweep: The id of the sweep.
        wanted: Which events.

    Returns:
        Messages, and None after each silence.

    Raises:
        WTBError: If there is no such sweep, or the server refuses.
    """
    stream = Stream(sweep, wanted)
    async with httpx.AsyncClient(**connection.options) as http:
        while True:
            outcome: Outcome
            try:
                async with http.stream(**as_sent(stream.request()), timeout=timeouts(SILENCE_S)) as response:
                    outcome = response
                    if not response.is_success:
                        await response.aread()
                    else:
                        lines = Lines()
                        async for piece in response.aiter_bytes():
                            for message in stream.taken(lines.add(piece)):
                                yield message
            except httpx.TransportError as error:
                outcome = error
            pause = stream.pause(connection.url, outcome)
            if stream.is_lost:
                connection.warn_of_loss()
            await asyncio.sleep(pause)
