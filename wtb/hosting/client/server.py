"""A server as the backend of commands and of `wtb.Bench`: each operation is a request, and its result is waited for."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import httpx

from wtb.core.documents.events import EventDocument
from wtb.display.views.progress import Watch
from wtb.execution.runtime.sweep_run import Ended
from wtb.execution.state import Progress
from wtb.hosting.client import async_stream, following
from wtb.hosting.client.answers import Outcome, Retries, broken_off, check, look_again
from wtb.hosting.client.connection import HEALTH, Connection, arguments_of, as_sent, timeouts
from wtb.hosting.client.requests import Request, refusal_of, request_of
from wtb.hosting.client.results import CELLS, LINES, READ_FROM, result_of, result_of_lines
from wtb.hosting.client.stream import SILENCE_S, Filter, Lines, Message, Stream
from wtb.hosting.client.uploads import upload_of
from wtb.operations.context import Context
from wtb.operations.handles.awaiting import follow_async
from wtb.operations.inspection.log import iter_events, log
from wtb.operations.inspection.sweeps import show, status
from wtb.operations.inspection.watching import watch
from wtb.operations.running.waiting import looks, wait, wait_by
from wtb.planning.factors.parameter_files import with_files_read

TIMEOUT_S = 60.0
LOOK_S = 1.0  # between two looks of who waits

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger("wtb")


class Server:
    """A server that `wtb serve` runs, which carries operations out. Threads may share it.

    Results and errors are those of the operations, as with a database. What only reads is asked again when the server
    does not answer, and so is what the server knows to have done already.

    Args:
        url: The server, such as `https://bench.example.org`.
        token: Who asks; by default that of WTB_TOKEN, else of `~/.config/wtb/credentials.toml`.
        timeout: Seconds to wait for an answer.
        session: The session of lists, baselines and schedules where none is named.
        report: Takes a line for people about what goes on.
        warn: Takes a line about what needs their attention, such as a server of another version.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = TIMEOUT_S,
        session: str | None = None,
        report: Callable[[str], None] = _log.info,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self._connection = Connection.to(url, token, timeout, warn)
        self._http = httpx.Client(**self._connection.options)
        self._is_known = False
        self._session = session
        self._report = report
        self._warn = warn

    @property
    def place(self) -> str:
        """The URL of the server."""
        return self._connection.url

    def warn(self, text: str) -> None:
        """Take a line about what needs the attention of people.

        Args:
            text: The line.
        """
        self._warn(text)

    def require_database(self, purpose: Callable[..., Any] | str) -> Context:
        """Raise the error that says why a server does not do it; see `Backend`.

        Args:
            purpose: The operation; or why a server does not do it.
        """
        raise refusal_of(purpose)

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Have the server carry out an operation.

        Args:
            operation: A function of WTB's registry.
            args: What it takes after its context.
            kwargs: What it takes by name.

        Returns:
            What the operation returns.

        Raises:
            WTBError: As the operation does; or if the server is out of reach or refuses.
        """
        arguments = with_files_read(arguments_of(operation, args, kwargs, self._session))
        if (other := READ_FROM.get(operation)) is not None:
            return cast(R, other.read(self.call(other.operation, arguments["ref"]), arguments["ref"]))
        if (sent_before := upload_of(arguments)) is not None:
            upload, arguments = sent_before
            self._sent(upload)
        special = SEVERAL_REQUESTS.get(operation)
        if special is not None and (operation is not log or arguments.get("follow")):
            known = inspect.signature(special).parameters
            return cast(R, special(self, **{name: value for name, value in arguments.items() if name in known}))
        request, route = request_of(operation, arguments)
        if route.name in LINES:
            lines = self._lines(request)
            about = self.call(show, arguments["ref"]) if route.name == CELLS else None
            return cast(R, result_of_lines(about, lines))
        return cast(R, result_of(route, self._sent(request)))

    def messages(self, sweep: str, wanted: Filter, after: str | None = None) -> Iterator[Message | None]:
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
        self._know()
        stream = Stream(sweep, wanted, after)
        while True:
            outcome: Outcome
            try:
                with self._http.stream(**as_sent(stream.request()), timeout=timeouts(SILENCE_S)) as response:
                    outcome = response
                    if not response.is_success:
                        response.read()
                    else:
                        lines = Lines()
                        for piece in response.iter_bytes():
                            yield from stream.taken(lines.add(piece))
            except httpx.TransportError as error:
                outcome = error
            pause = stream.pause(self.place, outcome)
            if stream.is_lost:
                self._connection.warn_of_loss()
            time.sleep(pause)

    def _iter_events(
        self, ref: str, *, severity: str = "debug", kinds: Sequence[str] = (), after: str | None = None
    ) -> Iterator[EventDocument]:
        """Yield the events of a sweep as they are written, for ever, whatever breaks meanwhile."""
        sweep = following.standing_of(self.call(status, ref)).sweep
        for message in self.messages(sweep, Filter(severity, tuple(kinds)), after):
            if message is not None:
                yield from message.events

    def _follow(
        self,
        ref: str,
        *,
        severity: str = "debug",
        kinds: Sequence[str] = (),
        execution: str | None = None,
        cases: bool = False,
        values: bool = False,
    ) -> Iterator[EventDocument]:
        """Yield the events of a sweep until it ends or pauses, or the execution does or waits for a person."""
        wanted = Filter(severity, tuple(kinds), cases, values=values)
        return following.follow(self, ref, wanted, execution, self._report)

    async def _follow_async(
        self, ref: str, *, severity: str, kinds: Sequence[str], values: bool
    ) -> AsyncIterator[EventDocument]:
        """Yield the same without blocking the event loop; how it stands is asked in a thread now and then."""
        standing = following.standing_of(await asyncio.to_thread(self.call, status, ref))
        followed = following.Followed.of(standing, Filter(severity, tuple(kinds), values=values), ref)
        async with aclosing(async_stream.messages(self._connection, followed.sweep, followed.asked)) as messages:
            async for message in messages:
                for event in () if message is None else followed.take(message):
                    yield event
                if message is None or followed.may_have_ended:
                    now = await asyncio.to_thread(following.standing_now, self, followed.execution or followed.sweep)
                    if now is not None and followed.has_ended(now):
                        return

    def _wait(
        self, ref: str, *, timeout: float | None = None, progress: Callable[[Progress], None] | None = None
    ) -> Ended:
        """Wait until a sweep or an execution ends, pauses or waits for a person, also while the server is away."""
        return wait_by(following.looks(self, ref), LOOK_S, timeout, progress)

    def _watch(self, ref: str | None = None) -> Watch:
        """Return what looks at how a sweep, or all open ones, stand, with workers and queues."""
        request, _ = request_of(watch, {"ref": ref})
        looked = self._sent(request).json()
        first = [looked]
        if ref is None:
            return Watch(lambda: first.pop() if first else self._sent(request).json(), None)
        id = looked["sweep"]["id"]
        again, _ = request_of(watch, {"ref": id})
        return Watch(lambda: first.pop() if first else self._sent(again).json(), id)

    # Requests

    def _know(self) -> None:
        """Ask once of what version the server is."""
        if not self._is_known:
            self._connection.know(self._asked(HEALTH))
            self._is_known = True

    def _sent(self, request: Request) -> httpx.Response:
        """Send a request to a server whose version is known, and wait for what takes long. Raises WTBError."""
        self._know()
        response = self._asked(request)
        while (again := look_again(response, self._connection.timeout)) is not None:
            response = self._asked(again)
        return response

    def _asked(self, request: Request) -> httpx.Response:
        """Send a request, again where that may help. Raises WTBError."""
        retries = Retries(request, knows_keys=self._connection.knows_keys)
        while True:
            outcome: Outcome
            try:
                outcome = self._http.request(**as_sent(request))
            except httpx.TransportError as error:
                outcome = error
            pause = retries.pause(outcome)
            if pause is None:
                return check(self.place, outcome)
            time.sleep(pause)

    def _lines(self, request: Request) -> Iterator[str]:
        """Send a request, and yield the lines of the answer as they are taken. Raises WTBError."""
        self._know()
        retries = Retries(request, knows_keys=False)
        while True:
            outcome: Outcome
            try:
                sent = self._http.build_request(**as_sent(request))
                outcome = self._http.send(sent, stream=True)
                if not outcome.is_success:
                    outcome.read()
            except httpx.TransportError as error:
                outcome = error
            pause = retries.pause(outcome)
            if pause is None:
                return self._taken(check(self.place, outcome))
            time.sleep(pause)

    def _taken(self, response: httpx.Response) -> Iterator[str]:
        lines = Lines()
        try:
            for piece in response.iter_bytes():
                yield from lines.add(piece)
        except httpx.TransportError as error:
            raise broken_off(self.place, error) from None
        finally:
            response.close()


SEVERAL_REQUESTS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    log: Server._follow,
    iter_events: Server._iter_events,
    follow_async: Server._follow_async,
    watch: Server._watch,
    wait: Server._wait,
    looks: following.looks,
}
