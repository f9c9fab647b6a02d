"""Several logs on one stream: each message under the name of the subscription that it is for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import monotonic
from typing import Annotated, Any, NamedTuple, TypeVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from wtb.core.errors import AccessDenied, InputError, NotFound, WTBError
from wtb.hosting.api.problems import problem_of
from wtb.hosting.api.streaming.streams import (
    FRAME_VERSION,
    MOST_SUBSCRIBERS,
    SILENCE_S,
    Message,
    Streams,
    message,
    read_position,
)
from wtb.operations.identity import Follower
from wtb.operations.inspection.log import Selection

MOST = 20  # on one stream
_LONGEST = 10_000  # characters of what describes one
_ALONE_S = 1.0  # between two looks whether who asks may still do so, where nothing else tells it
_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(config={"extra": "forbid"})
class Subscription:
    """What somebody wants of a log.

    Attributes:
        name: By which they know what is for it, and end it.
        sweep: A sweep: its id, the beginning of it, or its name.
        after: The id of the last message that was seen, or `now`; by default from the beginning.
        max_behind: How many events may be outstanding before they are left out for a `reset`; by default any number.
        severity: The least that is sent: debug, info, warning or error.
        kinds: What their kinds begin with; by default all.
        cases: Name the case of each, and the variants of its combination.
        ends: Those, too, that tell whether there is more to come.
        values: Add what nodes wrote, results, and the arguments of tools.
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
    """Read what a stream is to carry.

    Args:
        texts: Each a subscription, as JSON.
        last_event_id: The id of the last message of such a stream, to continue from.

    Raises:
        InputError: If there are none or too many, or one cannot be read, or has the name of another.
    """
    found = [read_subscription(text) for text in texts]
    names = [one.name for one in found]
    if not 0 < len(found) <= MOST:
        raise InputError(f"{len(found)} subscriptions; expected 1 to {MOST}", argument="subscribe")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two subscriptions are called {twice!r}; each needs a name of its own", argument="subscribe")
    pairs = [pair.partition(":") for pair in (last_event_id or "").split(",")]
    seen = {name: position for name, _, position in pairs if position}
    return [replace(one, after=seen.get(one.name, one.after)) for one in found]


def _read(text: str, read: Callable[[str], R]) -> R:
    if len(text) > _LONGEST:
        raise InputError(f"a subscription of {len(text):,} characters; {_LONGEST:,} are allowed", argument="subscribe")
    try:
        return read(text)
    except ValidationError as error:
        told = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".removeprefix(": ") for one in error.errors()]
        raise InputError(f"a subscription cannot be read: {'; '.join(told)}", argument="subscribe") from None


class _Came(NamedTuple):
    """What a subscription hands over: a message, or None where the whole stream is to end."""

    name: str
    by: asyncio.Task[None] | None
    message: Message | None


class Subscriptions:
    """What one stream carries. Of each log one message at most waits to be sent: who is slow costs no memory."""

    def __init__(
        self, streams: Streams, select: Callable[[Subscription], Awaitable[Selection]], owner: Follower | None
    ) -> None:
        """Make it; it carries nothing yet.

        Args:
            streams: The server's streams.
            select: Returns which events somebody may see of what they want.
            owner: Whose stream it is.
        """
        self._streams = streams
        self._select = select
        self._owner = owner
        self._following: dict[str, asyncio.Task[None]] = {}
        self._positions: dict[str, str] = {}
        self._coming: asyncio.Queue[_Came] = asyncio.Queue(1)

    def add(self, wanted: Subscription) -> asyncio.Event:
        """Carry a log, in place of what had the same name.

        Returns:
            What is set once it is known whether it can be followed.

        Raises:
            InputError: If the stream carries too many.
        """
        self.remove(wanted.name)
        if len(self._following) >= MOST:
            raise InputError(f"{MOST} subscriptions are on this stream already; end one first", argument="subscribe")
        if self._streams.followers >= MOST_SUBSCRIBERS:
            raise InputError(f"{MOST_SUBSCRIBERS} logs are followed already, which is the limit; try again later")
        is_known = asyncio.Event()
        self._following[wanted.name] = asyncio.create_task(self._follow(wanted, is_known))
        return is_known

    def remove(self, name: str) -> None:
        """Carry a log no longer."""
        self._positions.pop(name, None)
        if (task := self._following.pop(name, None)) is not None:
            task.cancel()

    def close(self) -> None:
        """Carry nothing any longer."""
        for name in list(self._following):
            self.remove(name)

    async def take(self, text: str) -> None:
        """Do what who follows asks by a message: `{"subscribe": {...}}` or `{"unsubscribe": NAME}`."""
        name = ""
        try:
            asked = _read(text, _COMMAND.validate_json)
            if set(asked) == {"subscribe"}:
                name = str(asked["subscribe"].get("name", "")) if isinstance(asked["subscribe"], dict) else ""
                wanted = _read(text, lambda _: _SUBSCRIPTION.validate_python(asked["subscribe"]))
                await self.add(wanted).wait()  # else a single socket could keep all threads busy
            elif set(asked) == {"unsubscribe"}:
                self.remove(str(asked["unsubscribe"]))
            else:
                raise InputError('expected {"subscribe": {...}} or {"unsubscribe": NAME}')
        except InputError as error:
            await self._coming.put(_Came(name if _NAME.fullmatch(name) else "", None, _ended(error)))

    async def messages(self, wanted: Sequence[Subscription] = ()) -> AsyncGenerator[Message | None, None]:
        """Yield messages for as long as the server runs and who follows may do so, and None after each silence.

        Args:
            wanted: What it carries from the beginning.

        Raises:
            InputError: If those are too many.
        """
        heard = monotonic()
        try:
            for one in wanted:
                self.add(one)
            async with self._streams.owned(self._owner):
                while not self._streams.is_over(self._owner):
                    came = await self._next(heard + SILENCE_S - monotonic())
                    if came is not None:
                        if came.message is None:
                            return
                        yield self._named(came.name, came.message)
                    elif monotonic() >= heard + SILENCE_S:
                        yield None
                    else:
                        continue
                    heard = monotonic()
        finally:
            self.close()

    async def _next(self, most_s: float) -> _Came | None:
        """Return what comes next, unless nothing does for some seconds, or what comes is wanted no more."""
        try:
            came = await asyncio.wait_for(self._coming.get(), most_s if self._following else min(most_s, _ALONE_S))
        except TimeoutError:
            return None
        return came if came.by is None or self._following.get(came.name) is came.by else None

    def _named(self, name: str, found: Message) -> Message:
        if found.id:
            self._positions[name] = found.id
        else:
            self._positions.pop(name, None)
        id = ",".join(":".join(pair) for pair in self._positions.items())
        return Message(id, b'{"subscription":"%b","message":%b}' % (name.encode(), found.text))

    async def _follow(self, wanted: Subscription, is_known: asyncio.Event) -> None:
        me = asyncio.current_task()

        async def hand_over(found: Message | None) -> None:
            await self._coming.put(_Came(wanted.name, me, found))

        try:
            try:
                selection = await self._select(wanted)
            finally:
                is_known.set()
            after = read_position(wanted.after)
            position = await self._streams.position(selection) if after is None else after
            await hand_over(message("subscribed", position))
            messages = self._streams.follow(selection, position, wanted.max_behind, self._owner)
            async with aclosing(messages):
                async for found in messages:
                    if found is not None:
                        await hand_over(found)
            await hand_over(None)
        except (AccessDenied, InputError, NotFound) as error:
            await hand_over(_ended(error))
        except WTBError:  # the database is out of reach: the client comes again, and is told so
            await hand_over(None)


def _ended(error: WTBError) -> Message:
    """What says that there is no such subscription, or no longer, and why."""
    problem = orjson.Fragment(bytes(problem_of(error).body))
    return Message("", orjson.dumps({"version": FRAME_VERSION, "id": None, "type": "ended", "problem": problem}))
