"""A server as the backend of commands and of `wtb.Bench`: each operation is a blocking request."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import inspect
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import httpx

from wtb.core.documents.all_events import EventDocument
from wtb.core.errors import InputError
from wtb.core.values import Arguments
from wtb.display.views.progress import Watch
from wtb.execution.runtime.sweep_run import Ended
from wtb.execution.state import Progress
from wtb.hosting.api.routes import PREFIX, UPLOADS
from wtb.hosting.client import following
from wtb.hosting.client.connection import HEALTH, Connection, arguments_of, as_sent, timeouts
from wtb.hosting.client.following import SILENCE_S, Filter, Lines, Message, Stream, messages
from wtb.hosting.client.requests import Outcome, Request, Retries, broken_off, check, look_again, refusal_of, request_of
from wtb.hosting.client.results import CELLS, LINES, READ_FROM, result_of, result_of_lines
from wtb.operations.context import Context
from wtb.operations.inspection.following import follow_async
from wtb.operations.inspection.log import iter_events, log
from wtb.operations.inspection.sweeps import show, status
from wtb.operations.running.waiting import looks, wait, wait_by, watch
from wtb.planning.parameter_files import with_files_read
from wtb.store.access.requests import MOST_BYTES

INLINE_BYTES = 800_000  # of cases, in a request of at most 1 MB


def upload_of(arguments: Arguments) -> tuple[Request, Arguments] | None:
    """Return the request that uploads cases, and the arguments that refer to it; None for few cases without a file.

    Args:
        arguments: The arguments of an operation.
    """
    if isinstance(cases := arguments.get("cases"), Path):
        name, content = cases.name, _content(cases)
        digest = hashlib.sha256(content).hexdigest()
        return _request(digest, content, []), {**arguments, "cases": {"upload": digest, "name": name}}
    keys = arguments.get("keys")
    if not isinstance(keys, Mapping):
        return None
    file = _as_file(keys.get("cases"))
    if file is None or len(file[1]) <= INLINE_BYTES:
        return None
    name, content = file
    digest = hashlib.sha256(content).hexdigest()
    project = keys.get("project")
    query = [("project", project)] if isinstance(project, str) else []
    named = {**keys, "cases": {"upload": digest, "name": name}}
    return _request(digest, content, query), {**arguments, "keys": named}


def _request(digest: str, content: bytes, query: list[tuple[str, str]]) -> Request:
    headers = {"Content-Type": "application/octet-stream"}
    return Request("PUT", f"{PREFIX}{UPLOADS}/{digest}", query, content, headers)


def _content(file: Path) -> bytes:
    """Return the contents of a file. Raises InputError."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); expected a file of cases", argument="cases"
        ) from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{file}: more than {MOST_BYTES:,} bytes; expected at most that many", argument="cases")
    return content


def _as_file(cases: object) -> tuple[str, bytes] | None:
    """Return a list or table of cases as a file with its name; None for anything else."""
    if isinstance(cases, Sequence) and not isinstance(cases, str):
        return "cases.jsonl", "\n".join(json.dumps(case) for case in cases).encode()
    if isinstance(cases, Mapping) and cases.keys() == {"headings", "rows"}:
        text = io.StringIO(newline="")
        csv.writer(text).writerows([cases["headings"], *cases["rows"]])
        return "cases.csv", text.getvalue().encode()
    return None


TIMEOUT_S = 60.0
LOOK_S = 1.0  # between two looks of who waits

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger("wtb")


class Server:
    """A server that `wtb serve` runs, which carries operations out. Threads may share it.

    Results and errors are those of the operations, as with a database. Requests that read are repeated if the server
    does not respond, and so are changes that the server recognizes by their keys.

    Args:
        url: The server, such as `https://bench.example.org`.
        token: The access token; by default that of WTB_TOKEN, else of `~/.config/wtb/credentials.toml`.
        timeout: Seconds to wait for a response.
        session: The session of lists, baselines and schedules if none is named.
        report: Called with lines about progress.
        warn: Called with warnings, such as about a server of another version.
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
        """Show a warning.

        Args:
            text: The line.
        """
        self._warn(text)

    def require_database(self, purpose: Callable[..., Any] | str) -> Context:
        """Raise the error for something that a server does not do; see `Backend`.

        Args:
            purpose: The operation, or the reason why a server does not do it.
        """
        raise refusal_of(purpose)

    def close(self) -> None:
        """Close the connections to the server."""
        self._http.close()

    def call(self, operation: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Carry out an operation on the server.

        Args:
            operation: A function of WTB's registry.
            args: Its positional arguments after the context.
            kwargs: Its keyword arguments.

        Returns:
            What the operation returns.

        Raises:
            WTBError: As the operation does; or if the server is out of reach or rejects the request.
        """
        arguments = with_files_read(arguments_of(operation, args, kwargs, self._session))
        if (other := READ_FROM.get(operation)) is not None:
            return cast(R, other.read(self.call(other.operation, arguments["ref"]), arguments["ref"]))
        # A request may have 1 MB, so cases beyond that are uploaded first, and the operation refers to their digest.
        if (sent_before := upload_of(arguments)) is not None:
            upload, arguments = sent_before
            self._sent(upload)
        special = SEVERAL_REQUESTS.get(operation)
        if special is not None and (operation is not log or arguments.get("follow")):
            parameters = inspect.signature(special).parameters
            taken = {name: argument for name, argument in arguments.items() if name in parameters}
            return cast(R, special(self, **taken))
        request, route = request_of(operation, arguments)
        if route.name in LINES:
            lines = self._lines(request)
            about = self.call(show, arguments["ref"]) if route.name == CELLS else None
            return cast(R, result_of_lines(about, lines))
        return cast(R, result_of(route, self._sent(request)))

    def messages(self, sweep: str, event_filter: Filter, after: str | None = None) -> Iterator[Message | None]:
        """Yield messages of the log of a sweep, for ever and despite broken connections, without gaps or repeats.

        Args:
            sweep: The id of the sweep.
            event_filter: The events to return.
            after: The id of the last message that you have seen, or `now`; None for the beginning.

        Returns:
            Messages, and None after each silence.

        Raises:
            WTBError: If there is no such sweep, or the server rejects the request.
        """
        self._know()
        stream = Stream(sweep, event_filter, after)
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
                            yield from stream.read_messages(lines.add(piece))
            except httpx.TransportError as error:
                outcome = error
            pause = stream.pause(self.place, outcome)
            if stream.is_lost:
                self._connection.warn_of_loss()
            time.sleep(pause)

    def _iter_events(
        self, ref: str, *, severity: str = "debug", kinds: Sequence[str] = (), after: str | None = None
    ) -> Iterator[EventDocument]:
        """Yield the events of a sweep as they are written, for ever and despite broken connections."""
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
        event_filter = Filter(severity, tuple(kinds), cases, values=values)
        return following.follow(self, ref, event_filter, execution, self._report)

    async def _follow_async(
        self, ref: str, *, severity: str, kinds: Sequence[str], values: bool
    ) -> AsyncIterator[EventDocument]:
        """Yield the same without blocking the event loop; statuses are read in a thread."""
        standing = following.standing_of(await asyncio.to_thread(self.call, status, ref))
        followed = following.Followed.of(standing, Filter(severity, tuple(kinds), values=values), ref)
        async with aclosing(messages(self._connection, followed.sweep, followed.server_filter)) as received:
            async for message in received:
                for event in () if message is None else followed.take(message):
                    yield event
                if message is None or followed.may_have_ended:
                    now = await asyncio.to_thread(following.standing_now, self, followed.execution or followed.sweep)
                    if now is not None and followed.has_ended(now):
                        return

    def _wait(
        self, ref: str, *, timeout: float | None = None, progress: Callable[[Progress], None] | None = None
    ) -> Ended:
        """Wait until a sweep or an execution ends, pauses or waits for a person, even while the server is away."""
        return wait_by(following.looks(self, ref), LOOK_S, timeout, progress)

    def _watch(self, ref: str | None = None) -> Watch:
        """Return a watch of a sweep, or of all open ones, with workers and queues."""
        request, _ = request_of(watch, {"ref": ref})
        looked = self._sent(request).json()
        first = [looked]
        if ref is None:
            return Watch(lambda: first.pop() if first else self._sent(request).json(), None)
        id = looked["sweep"]["id"]
        next_request, _ = request_of(watch, {"ref": id})
        return Watch(lambda: first.pop() if first else self._sent(next_request).json(), id)

    # Requests

    def _know(self) -> None:
        """Read the version of the server, once."""
        if not self._is_known:
            self._connection.know(self._send(HEALTH))
            self._is_known = True

    def _sent(self, request: Request) -> httpx.Response:
        """Send a request to a server whose version is known, and wait for long operations. Raises WTBError."""
        self._know()
        response = self._send(request)
        while (next_request := look_again(response, self._connection.timeout)) is not None:
            response = self._send(next_request)
        return response

    def _send(self, request: Request, *, stream: bool = False) -> httpx.Response:
        """Send a request, with retries if they may help. Raises WTBError.

        Args:
            request: The request.
            stream: Whether the body of a successful response is read later.
        """
        retries = Retries(request, knows_keys=self._connection.knows_keys)
        while True:
            outcome: Outcome
            try:
                outcome = self._http.send(self._http.build_request(**as_sent(request)), stream=stream)
                if not outcome.is_success:
                    outcome.read()
            except httpx.TransportError as error:
                outcome = error
            pause = retries.pause(outcome)
            if pause is None:
                return check(self.place, outcome)
            time.sleep(pause)

    def _lines(self, request: Request) -> Iterator[str]:
        """Send a request, and yield the lines of the response as they are consumed. Raises WTBError."""
        self._know()
        return self._read_lines(self._send(request, stream=True))

    def _read_lines(self, response: httpx.Response) -> Iterator[str]:
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
