"""Several logs on one stream, in one request that stays open: each message has the name of its subscription."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from time import monotonic
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
from fastapi import APIRouter, Header, Query, Request, WebSocket
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from starlette.responses import Response

from wtb.core.errors import AccessDenied, InputError, NotFound, WTBError
from wtb.hosting.api.guard import Rates
from wtb.hosting.api.identities import needing
from wtb.hosting.api.problems import Problem, problem_of
from wtb.hosting.api.routes import PREFIX
from wtb.hosting.api.streaming.follow import full, received, send, sent
from wtb.hosting.api.streaming.streams import (
    FRAME_VERSION,
    MOST_SUBSCRIBERS,
    SILENCE_S,
    Message,
    Streams,
    message,
    read_position,
)
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Follower, Identity
from wtb.operations.inspection.log import Selection, select_events
from wtb.operations.registry import Permission

MAX_SUBSCRIPTIONS = 20  # on one stream
_LONGEST = 10_000  # characters of a subscription
_ALONE_S = 1.0  # between two checks of the follower on a stream without subscriptions
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(config={"extra": "forbid"})
class Subscription:
    """A subscription to a log.

    Attributes:
        name: The name by which the client recognizes its messages, and ends it.
        sweep: A sweep: its id, the beginning of it, or its name.
        after: The id of the last message that was seen, or `now`; by default the beginning.
        max_behind: The number of outstanding events from which they are replaced by a `reset`; by default never.
        severity: The lowest severity: debug, info, warning or error.
        kinds: Prefixes of kinds; by default all.
        cases: Whether to add the case of each, and the variants of its combination.
        ends: Whether to include events that show whether more will come.
        values: Whether to add writes of nodes, results, and arguments of tools.
    """

    name: Annotated[str, Field(pattern=f"^{_NAME.pattern}$")]
    sweep: str
    after: str | None = None
    max_behind: Annotated[int, Field(ge=1)] | None = None
    severity: str = "debug"
    kinds: tuple[str, ...] = ()
    cases: bool = False
    ends: bool = False
    values: bool = False


R = TypeVar("R")
_SUBSCRIPTION = TypeAdapter(Subscription)
_COMMAND = TypeAdapter(dict[str, Any])


def read_subscription(text: str) -> Subscription:
    """Read a subscription, as JSON. Raises InputError."""
    return _read(text, _SUBSCRIPTION.validate_json)


def read_subscriptions(texts: list[str], last_event_id: str | None) -> list[Subscription]:
    """Read the subscriptions of a stream.

    Args:
        texts: The subscriptions, each as JSON.
        last_event_id: The id of the last message of such a stream, to continue from.

    Raises:
        InputError: If there are none or too many, or one cannot be read, or has the name of another.
    """
    subscriptions = [read_subscription(text) for text in texts]
    names = [subscription.name for subscription in subscriptions]
    if not 0 < len(subscriptions) <= MAX_SUBSCRIPTIONS:
        raise InputError(f"{len(subscriptions)} subscriptions; expected 1 to {MAX_SUBSCRIPTIONS}", argument="subscribe")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two subscriptions are called {twice!r}; each needs a name of its own", argument="subscribe")
    pairs = [pair.partition(":") for pair in (last_event_id or "").split(",")]
    seen = {name: position for name, _, position in pairs if position}
    return [
        replace(subscription, after=seen.get(subscription.name, subscription.after)) for subscription in subscriptions
    ]


def _read(text: str, read: Callable[[str], R]) -> R:
    if len(text) > _LONGEST:
        raise InputError(f"a subscription of {len(text):,} characters; {_LONGEST:,} are allowed", argument="subscribe")
    try:
        return read(text)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}".removeprefix(": ") for problem in error.errors()
        ]
        raise InputError(f"a subscription cannot be read: {'; '.join(problems)}", argument="subscribe") from None


class _Came(NamedTuple):
    """A message of a subscription, or None if the whole stream must end."""

    name: str
    by: asyncio.Task[None] | None
    message: Message | None


class Subscriptions:
    """The subscriptions of one stream. At most one message waits to be sent, so that slow clients cost no memory."""

    def __init__(
        self, streams: Streams, select: Callable[[Subscription], Awaitable[Selection]], owner: Follower | None
    ) -> None:
        """Make it; it carries nothing yet.

        Args:
            streams: The server's streams.
            select: Returns the selection of events of a subscription, if the client may read them.
            owner: The follower.
        """
        self._streams = streams
        self._select = select
        self._owner = owner
        self._following: dict[str, asyncio.Task[None]] = {}
        self._positions: dict[str, str] = {}
        self._coming: asyncio.Queue[_Came] = asyncio.Queue(1)

    def add(self, subscription: Subscription) -> asyncio.Event:
        """Add a subscription, which replaces one of the same name.

        Returns:
            An event that is set once it is known whether the log can be followed.

        Raises:
            InputError: If the stream has too many.
        """
        self.remove(subscription.name)
        if len(self._following) >= MAX_SUBSCRIPTIONS:
            raise InputError(
                f"{MAX_SUBSCRIPTIONS} subscriptions are on this stream already; end one first", argument="subscribe"
            )
        if self._streams.followers >= MOST_SUBSCRIBERS:
            raise InputError(f"{MOST_SUBSCRIBERS} logs are followed already, which is the limit; try again later")
        is_known = asyncio.Event()
        self._following[subscription.name] = asyncio.create_task(self._follow(subscription, is_known))
        return is_known

    def remove(self, name: str) -> None:
        """Remove a subscription."""
        self._positions.pop(name, None)
        if (task := self._following.pop(name, None)) is not None:
            task.cancel()

    def close(self) -> None:
        """Remove all subscriptions."""
        for name in list(self._following):
            self.remove(name)

    async def take(self, text: str) -> None:
        """Carry out a command of the client: `{"subscribe": {...}}` or `{"unsubscribe": NAME}`."""
        name = ""
        try:
            command = _read(text, _COMMAND.validate_json)
            if set(command) == {"subscribe"}:
                name = str(command["subscribe"].get("name", "")) if isinstance(command["subscribe"], dict) else ""
                subscription = _read(text, lambda _: _SUBSCRIPTION.validate_python(command["subscribe"]))
                # One after the other: otherwise a single socket could keep all threads busy with selecting.
                await self.add(subscription).wait()
            elif set(command) == {"unsubscribe"}:
                self.remove(str(command["unsubscribe"]))
            else:
                raise InputError('expected {"subscribe": {...}} or {"unsubscribe": NAME}')
        except InputError as error:
            await self._coming.put(_Came(name if _NAME.fullmatch(name) else "", None, _ended(error)))

    async def messages(self, subscriptions: Sequence[Subscription] = ()) -> AsyncGenerator[Message | None, None]:
        """Yield messages as long as the server runs and the client may follow, and None after each silence.

        Args:
            subscriptions: The first subscriptions.

        Raises:
            InputError: If there are too many.
        """
        sent_at = monotonic()
        try:
            for subscription in subscriptions:
                self.add(subscription)
            async with self._streams.owned(self._owner):
                while not self._streams.is_over(self._owner):
                    came = await self._next(sent_at + SILENCE_S - monotonic())
                    if came is not None:
                        if came.message is None:
                            return
                        yield self._named(came.name, came.message)
                    elif monotonic() >= sent_at + SILENCE_S:
                        yield None
                    else:
                        continue
                    sent_at = monotonic()
        finally:
            self.close()

    async def _next(self, most_s: float) -> _Came | None:
        """Return the next message; None after some seconds without one, or if its subscription was removed."""
        try:
            async with asyncio.timeout(most_s if self._following else min(most_s, _ALONE_S)):
                came = await self._coming.get()
        except TimeoutError:
            return None
        # A message that was under way when its subscription was removed or replaced is dropped.
        return came if came.by is None or self._following.get(came.name) is came.by else None

    def _named(self, name: str, incoming: Message) -> Message:
        if incoming.id:
            self._positions[name] = incoming.id
        else:
            self._positions.pop(name, None)
        # With the positions of all subscriptions, so that a client that reconnects continues each of them.
        id = ",".join(":".join(pair) for pair in self._positions.items())
        return Message(id, b'{"subscription":"%b","message":%b}' % (name.encode(), incoming.text))

    async def _follow(self, subscription: Subscription, is_known: asyncio.Event) -> None:
        me = asyncio.current_task()

        async def enqueue(incoming: Message | None) -> None:
            await self._coming.put(_Came(subscription.name, me, incoming))

        try:
            try:
                selection = await self._select(subscription)
            finally:
                is_known.set()
            after = read_position(subscription.after)
            position = await self._streams.position(selection) if after is None else after
            await enqueue(message("subscribed", position))
            messages = self._streams.follow(selection, position, subscription.max_behind, self._owner)
            async with aclosing(messages):
                async for incoming in messages:
                    if incoming is not None:
                        await enqueue(incoming)
            await enqueue(None)
        except (AccessDenied, InputError, NotFound) as error:
            await enqueue(_ended(error))
        except WTBError:  # the database is out of reach: the client comes again, and is told so
            await enqueue(None)


def _ended(error: WTBError) -> Message:
    """Make the message that a subscription was rejected or has ended, with the reason."""
    problem = orjson.Fragment(bytes(problem_of(error).body))
    return Message("", orjson.dumps({"version": FRAME_VERSION, "id": None, "type": "ended", "problem": problem}))


PATH = f"{PREFIX}/stream"

Subscribe = Annotated[
    list[str],
    Query(
        description="The subscriptions, each as JSON: its `name`, the `sweep`, and `after`, `max_behind`, `severity`, "
        "`kinds`, `cases` and `ends` as for the events of one sweep."
    ),
]


def router(context: Context, streams: Streams, rates: Rates) -> APIRouter:
    """Return both routes.

    Args:
        context: The context of sweeps.
        streams: The server's streams.
        rates: The rates of messages by identity.
    """
    routes = APIRouter()

    def of(identity: Identity) -> Subscriptions:
        mine = context.acting_as(identity, Permission.read)

        def selection(subscription: Subscription) -> Selection:
            return select_events(
                mine,
                subscription.sweep,
                severity=subscription.severity,
                kinds=subscription.kinds,
                cases=subscription.cases,
                ends=subscription.ends,
                values=subscription.values,
            )

        async def select(subscription: Subscription) -> Selection:
            return await run_quickly(selection, subscription)

        return Subscriptions(streams, select, identity.follower)

    @routes.get(
        PATH,
        summary="Follow the events of several sweeps.",
        tags=["sweeps"],
        response_model=None,
        dependencies=[needing(Permission.read)],
    )
    async def events(
        request: Request, subscribe: Subscribe, last_event_id: Annotated[str | None, Header()] = None
    ) -> Response:
        identity: Identity = request.state.identity
        subscriptions = read_subscriptions(subscribe, last_event_id)
        if streams.followers + len(subscriptions) > MOST_SUBSCRIBERS:
            return full()
        return sent(of(identity).messages(subscriptions))

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
    """Carry out the commands of a client in order, until it disconnects."""
    async for text in texts:
        await carried.take(text)
