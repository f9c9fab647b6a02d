"""The client of a server that has nobody wait: for programs with an event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, cast

import httpx

from wtb.core.documents.events import EventDocument
from wtb.core.errors import AccessDenied, ServerError
from wtb.execution.runtime.sweep_run import Ended
from wtb.hosting.client.answers import Outcome, Retries, check, look_again
from wtb.hosting.client.client import LOOK_S, TIMEOUT_S
from wtb.hosting.client.connection import HEALTH, Connection, arguments_of, as_sent, timeouts
from wtb.hosting.client.following import Followed, Standing, standing_of
from wtb.hosting.client.operations import AsyncOperations
from wtb.hosting.client.requests import Request, request_of
from wtb.hosting.client.results import CELLS, LINES, result_of, result_of_lines
from wtb.hosting.client.stream import SILENCE_S, Filter, Lines, Message, Stream
from wtb.hosting.client.uploads import upload_of, with_files_read
from wtb.operations.context import Context
from wtb.operations.inspection.sweeps import show, status

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger("wtb")


class AsyncClient(AsyncOperations):
    """A server of WTB's, asked without holding up the event loop. It is an asynchronous context manager.

    It does what `Client` does; what comes in lines is read whole before it is returned.

    Args:
        url: The server, such as `https://bench.example.org`.
        token: Who asks; by default that of WTB_TOKEN, else of `~/.config/wtb/credentials.toml`.
        timeout: Seconds to wait for an answer.
        session: The session of lists, baselines and schedules where none is named.
        warn: Takes a line about what needs the attention of people, such as a server of another version.

    Example:
        >>> from wtb.client import AsyncClient
        >>> AsyncClient("bench.example.org", token="...")
        Traceback (most recent call last):
        ...
        wtb.core.errors.InputError: 'bench.example.org' is no server; expected a URL such as https://bench.example.org
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        session: str | None = None,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self._connection = Connection.to(url, token, timeout, warn)
        self._http = httpx.AsyncClient(**self._connection.options)
        self._is_known = False
        self._session = session

    @property
    def place(self) -> str:
        """The URL of the server."""
        return self._connection.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._http.aclose()

    async def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Have the server carry out an operation.

        Args:
            operation: A function of WTB's registry that takes one request: `follow` and `wait` are methods.
            args: What it takes after its context.
            kwargs: What it takes by name.

        Returns:
            What the operation returns.

        Raises:
            WTBError: As the operation does; or if the server is out of reach or refuses.
        """
        arguments = with_files_read(arguments_of(operation, args, kwargs, self._session))
        if (sent_before := upload_of(arguments)) is not None:
            upload, arguments = sent_before
            await self._sent(upload)
        request, route = request_of(operation, arguments)
        response = await self._sent(request)
        if route.name not in LINES:
            return cast(R, result_of(route, response))
        about = await self.call(show, arguments["ref"]) if route.name == CELLS else None
        return cast(R, result_of_lines(about, Lines().add(response.content)))

    async def messages(
        self, sweep: str, wanted: Filter, after: str | None = None
    ) -> AsyncGenerator[Message | None, None]:
        """Yield what comes of the log of a sweep, for ever, whatever breaks: nothing is left out or comes twice.

        Args:
            sweep: The id of the sweep.
            wanted: Which events.
            after: The id of the last message that was seen, or `now`; None for the beginning.

        Returns:
            Messages, and None after each silence.

        Raises:
            WTBError: If there is no such sweep, or the server refuses.
        """
        await self._know()
        stream = Stream(sweep, wanted, after)
        while True:
            outcome: Outcome
            try:
                async with self._http.stream(**as_sent(stream.request()), timeout=timeouts(SILENCE_S)) as response:
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
            pause = stream.pause(self.place, outcome)
            if stream.is_lost:
                self._connection.warn_of_loss()
            await asyncio.sleep(pause)

    async def iter_events(
        self,
        ref: str,
        *,
        severity: str = "debug",
        kinds: Sequence[str] = (),
        cases: bool = False,
        after: str | None = None,
    ) -> AsyncIterator[EventDocument]:
        """Yield the events of a sweep as they are written, for ever, whatever breaks meanwhile.

        Args:
            ref: A sweep: its id, the beginning of it, or its name.
            severity: The least that is returned: debug, info, warning or error.
            kinds: What their kinds begin with; by default all.
            cases: Name the case of each event's execution, and the variants of its combination.
            after: `now` for what is yet to come; by default all from the beginning.

        Returns:
            Events, the oldest first: all of them, and none twice.

        Raises:
            WTBError: If there is no such sweep, or the server refuses.
        """
        sweep = standing_of(await self.call(status, ref)).sweep
        async with aclosing(self.messages(sweep, Filter(severity, tuple(kinds), cases), after)) as messages:
            async for message in messages:
                for event in () if message is None else message.events:
                    yield event

    async def follow(
        self,
        ref: str,
        *,
        severity: str = "debug",
        kinds: Sequence[str] = (),
        execution: str | None = None,
        cases: bool = False,
        values: bool = False,
    ) -> AsyncIterator[EventDocument]:
        """Yield the events of a sweep until it ends or pauses, or the execution does or waits for a person.

        Args:
            ref: A sweep: its id, the beginning of it, or its name.
            severity: The least that is returned: debug, info, warning or error.
            kinds: What their kinds begin with; by default all.
            execution: Only events of this execution: its id, or the beginning of it.
            cases: Name the case of each event's execution, and the variants of its combination.
            values: Add what nodes wrote, results, and the arguments of tools.

        Returns:
            Events, the oldest first: all of them, and none twice.

        Raises:
            WTBError: If there is no such sweep, or the server refuses.
        """
        standing = standing_of(await self.call(status, ref if execution is None else execution))
        followed = Followed.of(standing, Filter(severity, tuple(kinds), cases, values=values), execution)
        async with aclosing(self.messages(followed.sweep, followed.asked)) as messages:
            async for message in messages:
                for event in () if message is None else followed.take(message):
                    yield event
                if message is None or followed.may_have_ended:
                    found = await self._standing(followed.execution or followed.sweep)
                    if found is not None and followed.has_ended(found):
                        return

    async def wait(self, ref: str, *, timeout: float | None = None) -> Ended:
        """Wait until a sweep or an execution ends, pauses or waits for a person, also while the server is away.

        Args:
            ref: A sweep or an execution: its id, the beginning of it, or a sweep's name.
            timeout: Seconds to wait at most; None for as long as it takes.

        Returns:
            How it ended, or stands when the time is up.

        Raises:
            WTBError: If there is no such sweep or execution, or the server refuses.
        """
        began = time.monotonic()
        standing = standing_of(await self.call(status, ref))
        while standing.goes_on and (timeout is None or time.monotonic() < began + timeout):
            await asyncio.sleep(LOOK_S if timeout is None else min(LOOK_S, timeout))
            standing = await self._standing(standing.id) or standing
        return standing.ended

    async def _standing(self, id: str) -> Standing | None:
        """Return how something stands; None while the server is away."""
        try:
            return standing_of(await self.call(status, id))
        except AccessDenied:
            raise
        except ServerError:
            return None

    async def _know(self) -> None:
        """Ask once of what version the server is."""
        if not self._is_known:
            self._connection.know(await self._asked(HEALTH))
            self._is_known = True

    async def _sent(self, request: Request) -> httpx.Response:
        """Send a request to a server whose version is known, and wait for what takes long. Raises WTBError."""
        await self._know()
        response = await self._asked(request)
        while (again := look_again(response, self._connection.timeout)) is not None:
            response = await self._asked(again)
        return response

    async def _asked(self, request: Request) -> httpx.Response:
        """Send a request, again where that may help. Raises WTBError."""
        retries = Retries(request, knows_keys=self._connection.knows_keys)
        while True:
            outcome: Outcome
            try:
                outcome = await self._http.request(**as_sent(request))
            except httpx.TransportError as error:
                outcome = error
            pause = retries.pause(outcome)
            if pause is None:
                return check(self.place, outcome)
            await asyncio.sleep(pause)
