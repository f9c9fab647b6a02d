"""The events of one execution as server-sent events: from its first to its result, after which the stream closes.

Source: the HTML standard, "Server-sent events" (`event`, `id` and `Last-Event-ID`).
"""

from __future__ import annotations

import logging
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

from wtb.core.documents.all_events import EventDocument
from wtb.core.documents.executions import OutcomeDocument
from wtb.core.errors import AccessDenied, ConflictError, NotFound, StoreError, WTBError
from wtb.core.frozen import frozen
from wtb.hosting.api.ends import ENDED, GOING_ON, when_ended, when_stopped
from wtb.hosting.api.identities import needing, origin_of
from wtb.hosting.api.problems import Problem, json_response
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.follow import COMMENT, HEADERS, RECONNECT, full
from wtb.hosting.api.streaming.streams import MOST_SUBSCRIBERS, SILENCE_S, Streams, read_position
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.control.pause_cancel import cancel
from wtb.operations.identity import Follower, Identity
from wtb.operations.inspection.ends import Ends
from wtb.operations.inspection.log import SEVERITIES, Page, Selection, events_after, matches, severities_from
from wtb.operations.inspection.sweeps import outcome, statuses_of
from wtb.operations.registry import Permission
from wtb.store.log import START, LogPosition

PATH = f"{PREFIX}/executions/{{ref}}/events"
EVENT_STREAM = "text/event-stream"
RESULT = "result"  # the kind of the last message
_LOOK_S = 0.1  # between two looks at the log of what has stopped
_SETTLED_S = 3.0  # until committed events can be read
P = ParamSpec("P")
R = TypeVar("R")

Kinds = Annotated[tuple[str, ...], Query(description="Prefixes of the kinds of events; by default all.")]
Severity = Annotated[str, Query(description="The lowest severity to send: debug, info, warning or error.")]


def wants_stream(request: Request) -> bool:
    """Return whether a request accepts server-sent events."""
    accepted = request.headers.get("Accept", "").split(",")
    return any(media_type.partition(";")[0].strip().lower() == EVENT_STREAM for media_type in accepted)


@frozen
class WantedEvents:
    """A selection of an execution's events. `severities` and `kinds` are as in `Selection`."""

    severities: Sequence[str]
    kinds: Sequence[str] = ()

    def of(self, page: Page, execution: str) -> list[tuple[LogPosition, EventDocument]]:
        """Return the selected events of an execution in a page, with their positions."""
        return [
            (position, event)
            for position, event in _of_execution(page, execution)
            if matches(event["kind"], event["severity"], self.severities, self.kinds)
        ]


def _of_execution(page: Page, execution: str) -> list[tuple[LogPosition, EventDocument]]:
    return [pair for pair in zip(page.positions, page.events, strict=True) if pair[1]["execution"] == execution]


def router(context: Context, streams: Streams) -> APIRouter:
    """Return the route that follows an execution to its end.

    Args:
        context: The context of executions.
        streams: The server's streams.
    """
    routes = APIRouter(tags=["executions"], dependencies=[needing(Permission.read)])

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
        reading = context.acting_as(identity, Permission.read)
        event_filter = WantedEvents(severities_from(severity), kinds)
        about = await run_quickly(outcome, reading, ref)
        position = read_position(last_event_id or after)
        if position is None:
            return Problem(HTTPStatus.BAD_REQUEST, "the events of an execution begin with its first, not with `now`")
        if streams.followers >= MOST_SUBSCRIBERS:
            return full()
        return ExecutionStream(reading, streams, about, event_filter, position, identity.follower)

    return routes


class ExecutionStream(StreamingResponse):
    """The response with the events of an execution, and with its result at the end."""

    def __init__(
        self,
        context: Context,
        streams: Streams,
        about: OutcomeDocument,
        event_filter: WantedEvents,
        after: LogPosition,
        owner: Follower | None,
        *,
        status: HTTPStatus = HTTPStatus.OK,
        given_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make it.

        Args:
            context: The context of the client, who may read it.
            streams: The server's streams.
            about: The execution.
            event_filter: The events to send.
            after: The position of the last event that the client has seen.
            owner: The follower.
            status: The status of the response.
            given_up: Called if the connection closes before the result was sent.
        """
        self._context, self._streams, self._about, self._event_filter = context, streams, about, event_filter
        self._after, self._owner, self._given_up = after, owner, given_up
        self._is_over = False  # the result was sent, or the server or the token ends
        headers = {**HEADERS, "Location": f"{PREFIX}/executions/{about['execution']}"}
        super().__init__(self._as_sent(), status, headers, media_type=EVENT_STREAM)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # If the server ends or the token is revoked, the client has not given up.
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
        """Yield events as they come, and the result when the execution no longer continues by itself."""
        id, sweep, position = self._about["execution"], self._about["sweep"], self._after
        selection, progress = Selection(sweep, SEVERITIES, ()), _Progress(id)
        async with self._streams.tail(selection) as tail, self._streams.owned(self._owner):
            sent_at, last = monotonic(), position
            while not self._streams.is_over(self._owner) and not tail.is_deleted:
                # Before the events are read: if the status is final here, the events that led to it are in the log
                # already.
                progress.take_statuses(*await self._read(statuses_of, id))
                is_last = False
                while not is_last:
                    page = await self._read(events_after, selection, position)
                    for place, event in self._event_filter.of(page, id):
                        yield _message(event["kind"], event, place)
                        sent_at = monotonic()
                    progress.see(page.events)
                    last = max((place for place, _ in _of_execution(page, id)), default=last)
                    position, is_last = page.upto, page.is_last
                # PostgreSQL hides events while an older transaction is open, so they may appear after the status.
                if progress.is_over(settles=not self._context.database.is_sqlite):
                    document = await self._read(outcome, id)
                    if document["status"] not in GOING_ON:
                        yield _message(RESULT, document, last)
                        return
                if monotonic() >= sent_at + SILENCE_S:
                    yield COMMENT
                    sent_at = monotonic()
                if tail.position <= position:
                    await tail.wait(_LOOK_S if progress.has_stopped else sent_at + SILENCE_S - monotonic())

    async def _read(self, function: Callable[Concatenate[Context, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await run_quickly(partial(function, self._context, *args, **kwargs))


class _Progress:
    """The progress of a stream: whether the execution has stopped, and whether the event about it was seen."""

    def __init__(self, execution: str) -> None:
        self._statuses = "", ""
        self._ends = Ends(lambda: self._statuses[0], (execution, lambda: self._statuses[1]))
        self._stopped_at: float | None = None

    def take_statuses(self, sweep: str, execution: str) -> None:
        """Record the statuses of the sweep and the execution, before the events until then are read."""
        self._statuses = sweep, execution
        self._ends.read_statuses()
        if not self.has_stopped:
            self._stopped_at = None
        elif self._stopped_at is None:
            self._stopped_at = monotonic()

    @property
    def has_stopped(self) -> bool:
        """True if it no longer continues by itself."""
        return self._statuses[1] not in GOING_ON

    def see(self, events: Sequence[EventDocument]) -> None:
        """Process events of the log in its order."""
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
    """Finish work even if the request that began it is cancelled."""
    with CancelScope(shield=True):
        await work


_CANCELLED = "the connection of the request that started it was closed"
_log = logging.getLogger("wtb")


class Started:
    """Responses to requests that start an execution.

    Args:
        context: The context of executions.
        streams: The server's streams.
    """

    def __init__(self, context: Context, streams: Streams) -> None:
        self._context, self._streams = context, streams

    def refusal(self, request: Request, cancels: bool) -> Problem | None:
        """Return the problem of a request that lacks a permission for its options; None if it may start an execution.

        Args:
            request: It.
            cancels: Whether the execution is cancelled when its connection closes.
        """
        identity: Identity = request.state.identity
        streams = wants_stream(request)
        needs = [Permission.steer] * cancels + [Permission.read] * streams
        text = next((text for permission in needs if (text := identity.refusal(permission))), None)
        if text is not None:
            return Problem(HTTPStatus.FORBIDDEN, text)
        return full() if streams and self._streams.followers >= MOST_SUBSCRIBERS else None

    async def followed(self, request: Request, response: Response, wait_s: float, cancels: bool) -> Response:
        """Return the response: all events if the request accepts a stream, else the outcome if it waits.

        Args:
            request: It.
            response: The response to the start, or its problem.
            wait_s: Seconds to wait.
            cancels: Whether the execution is cancelled if the connection closes before the answer is complete.
        """
        identity: Identity = request.state.identity
        if response.status_code != HTTPStatus.CREATED:
            return response
        if identity.refusal(Permission.read):  # then its status only, and nothing of its state
            return await when_ended(self._context.acting_as(identity, Permission.submit), response, wait_s)
        ref = orjson.loads(bytes(response.body))["sweep"]
        reading = self._context.acting_as(identity, Permission.read)
        if not (wants_stream(request) or wait_s):
            return response
        try:
            if wants_stream(request):
                return await self._streamed(request, reading, ref, cancels)
            document = await when_stopped(reading, ref, wait_s, request.is_disconnected)
        except WTBError as error:
            # An error would make the client start it again, although it was started.
            _log.warning("the outcome of execution %s was not read: %s", ref, error)
            return response
        if cancels and document["status"] in GOING_ON and await request.is_disconnected():
            await self._cancel(request, ref)
        return _with_outcome(response, document)

    async def _streamed(self, request: Request, reading: Context, ref: str, cancels: bool) -> Response:
        identity: Identity = request.state.identity
        about = await run_quickly(outcome, reading, ref)
        event_filter = WantedEvents(severities_from("debug"))

        async def given_up() -> None:
            await self._cancel(request, ref)

        return ExecutionStream(
            reading,
            self._streams,
            about,
            event_filter,
            START,
            identity.follower,
            status=HTTPStatus.CREATED,
            given_up=given_up if cancels else None,
        )

    async def _cancel(self, request: Request, ref: str) -> None:
        """Cancel an execution whose client has gone, with the identity that started it."""
        origin = origin_of(request, f"{request.method} {request.url.path}")
        acting = self._context.acting_as(request.state.identity, Permission.steer, origin)
        try:
            await run_quickly(lambda: cancel(acting, ref, reason=_CANCELLED))
        except ConflictError:  # it has ended
            pass
        except (AccessDenied, StoreError) as error:
            _log.warning("execution %s was not cancelled although its client has gone: %s", ref, error)


def _with_outcome(response: Response, current: OutcomeDocument) -> Response:
    """Return the response to a start with the outcome of the execution, or with 202 if it has not ended."""
    document = orjson.loads(bytes(response.body)) | current
    status = HTTPStatus.CREATED if current["status"] in ENDED else HTTPStatus.ACCEPTED
    return json_response(document, status, Location=response.headers["Location"])
