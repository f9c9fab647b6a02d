"""The events of one execution as server-sent events: from its first to its result, after which the stream closes.

Source: the HTML standard, "Server-sent events" (`event`, `id` and `Last-Event-ID`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Annotated, Concatenate, ParamSpec, TypeVar

import orjson
from anyio import CancelScope
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from wtb.core.classes.frozen import frozen
from wtb.core.documents.events import EventDocument
from wtb.core.documents.executions import OutcomeDocument
from wtb.core.errors import NotFound
from wtb.hosting.api.problems import Problem
from wtb.hosting.api.requests.outcomes import GOING_ON
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.sending import COMMENT, HEADERS, RECONNECT, full
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, SILENCE_S, Streams, read_position
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Follower, Identity
from wtb.operations.inspection.ends import Ends
from wtb.operations.inspection.log import SEVERITIES, Page, Selection, events_after, matches, severities_from
from wtb.operations.inspection.sweeps import outcome, statuses_of
from wtb.operations.registry import Permission
from wtb.store.log import LogPosition

PATH = f"{PREFIX}/executions/{{ref}}/events"
EVENT_STREAM = "text/event-stream"
RESULT = "result"  # the kind of the last message
_LOOK_S = 0.1  # between two looks at the log of what has stopped
_SETTLED_S = 3.0  # in which events can be read that were committed
P = ParamSpec("P")
R = TypeVar("R")

Kinds = Annotated[tuple[str, ...], Query(description="What the kinds of events begin with; by default all.")]
Severity = Annotated[str, Query(description="The least that is sent: debug, info, warning or error.")]


def wants_stream(request: Request) -> bool:
    """Return whether a request accepts server-sent events."""
    accepted = request.headers.get("Accept", "").split(",")
    return any(one.partition(";")[0].strip().lower() == EVENT_STREAM for one in accepted)


@frozen
class WantedEvents:
    """Which events of an execution are sent. severities, kinds: as of a `Selection`."""

    severities: Sequence[str]
    kinds: Sequence[str] = ()

    def of(self, page: Page, execution: str) -> list[tuple[LogPosition, EventDocument]]:
        """Return the events of an execution in a page that are sent, with their positions."""
        return [
            (position, event)
            for position, event in _of_execution(page, execution)
            if matches(event["kind"], event["severity"], self.severities, self.kinds)
        ]


def _of_execution(page: Page, execution: str) -> list[tuple[LogPosition, EventDocument]]:
    return [pair for pair in zip(page.positions, page.events, strict=True) if pair[1]["execution"] == execution]


def router(context: Context, streams: Streams) -> APIRouter:
    """Return the request that follows an execution to its end.

    Args:
        context: Where the executions are.
        streams: The server's streams.
    """
    routes = APIRouter(tags=["executions"])

    @routes.get(PATH, summary="Follow the events of an execution to its result.", response_model=None)
    async def events(
        request: Request,
        ref: str,
        severity: Severity = "debug",
        kinds: Kinds = (),
        after: Annotated[str | None, Query(description="The id of the last message that was seen.")] = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        identity: Identity = request.state.identity
        if refusal := identity.refusal(Permission.read):
            return Problem(HTTPStatus.FORBIDDEN, refusal)
        reading = context.acting_as(identity, Permission.read)
        wanted = WantedEvents(severities_from(severity), kinds)
        found = await run_quickly(outcome, reading, ref)
        position = read_position(last_event_id or after)
        if position is None:
            return Problem(HTTPStatus.BAD_REQUEST, "the events of an execution begin with its first, not with `now`")
        if streams.followers >= MOST_SUBSCRIBERS:
            return full()
        return ExecutionStream(reading, streams, found, wanted, position, identity.follower)

    return routes


class ExecutionStream(StreamingResponse):
    """The response with the events of an execution, and with its result at the end."""

    def __init__(
        self,
        context: Context,
        streams: Streams,
        about: OutcomeDocument,
        wanted: WantedEvents,
        after: LogPosition,
        owner: Follower | None,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        given_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make it.

        Args:
            context: Where, for who may read it.
            streams: The server's streams.
            about: The execution.
            wanted: Which events are sent.
            after: The position of the last event that was seen.
            owner: Whose stream it is.
            status: Of the response.
            given_up: Called if the connection closes before the result was sent.
        """
        self._context, self._streams, self._about, self._wanted = context, streams, about, wanted
        self._after, self._owner, self._given_up = after, owner, given_up
        self._is_over = False  # the result was sent, or the server or the token ends
        headers = {**HEADERS, "Location": f"{PREFIX}/executions/{about['execution']}"}
        super().__init__(self._as_sent(), status, headers, media_type=EVENT_STREAM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._given_up is not None and not self._is_over and not self._streams.is_over(self._owner):
                await _to_the_end(self._given_up())

    async def _as_sent(self) -> AsyncIterator[bytes]:
        yield RECONNECT
        with suppress(NotFound):  # it was deleted
            async with aclosing(self._messages()) as messages:
                async for message in messages:
                    yield message
        self._is_over = True

    async def _messages(self) -> AsyncGenerator[bytes, None]:
        """Yield events as they come, and the result when the execution goes on no more by itself."""
        id, sweep, position = self._about["execution"], self._about["sweep"], self._after
        selection, progress = Selection(sweep, SEVERITIES, ()), _Progress(id)
        async with self._streams.tail(selection) as tail, self._streams.owned(self._owner):
            heard, last = monotonic(), position
            while not self._streams.is_over(self._owner) and not tail.is_deleted:
                progress.take_statuses(*await self._read(statuses_of, id))
                is_last = False
                while not is_last:
                    page = await self._read(events_after, selection, position)
                    for place, event in self._wanted.of(page, id):
                        yield _message(event["kind"], event, place)
                        heard = monotonic()
                    progress.see(page.events)
                    last = max((place for place, _ in _of_execution(page, id)), default=last)
                    position, is_last = page.upto, page.is_last
                if progress.is_over(settles=not self._context.database.is_sqlite):
                    found = await self._read(outcome, id)
                    if found["status"] not in GOING_ON:
                        yield _message(RESULT, found, last)
                        return
                if monotonic() >= heard + SILENCE_S:
                    yield COMMENT
                    heard = monotonic()
                if tail.position <= position:
                    await tail.wait(_LOOK_S if progress.has_stopped else heard + SILENCE_S - monotonic())

    async def _read(self, function: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await run_quickly(partial(function, self._context, *args, **kwargs))


class _Progress:
    """Whether an execution has stopped, and whether the event that says so was seen."""

    def __init__(self, execution: str) -> None:
        self._statuses = "", ""
        self._ends = Ends(lambda: self._statuses[0], (execution, lambda: self._statuses[1]))
        self._stopped_at: float | None = None

    def take_statuses(self, sweep: str, execution: str) -> None:
        """Take the statuses of the sweep and the execution, before the events that came until then are read."""
        self._statuses = sweep, execution
        self._ends.read_statuses()
        if not self.has_stopped:
            self._stopped_at = None
        elif self._stopped_at is None:
            self._stopped_at = monotonic()

    @property
    def has_stopped(self) -> bool:
        """Whether it goes on no more by itself."""
        return self._statuses[1] not in GOING_ON

    def see(self, events: Sequence[EventDocument]) -> None:
        """Take events of the log in its order."""
        self._ends.see((event["kind"], event["execution"]) for event in events)

    def is_over(self, *, settles: bool) -> bool:
        """Return whether all its events were seen.

        Args:
            settles: Whether events can be read later than the status that was committed with them. A client that
                continues after the last event sees none, so the wait for it is bounded.
        """
        if self._stopped_at is None:
            return False
        return not settles or self._ends.are_seen or monotonic() > self._stopped_at + _SETTLED_S


def _message(kind: str, document: object, position: LogPosition) -> bytes:
    id = "-".join(map(str, position))
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id.encode(), kind.encode(), orjson.dumps(document, default=str))


async def _to_the_end(work: Awaitable[None]) -> None:
    """Finish work although the request that began it was cancelled."""
    with CancelScope(shield=True):
        await work
