"""Events of sweeps as they happen: one reader for all followers, and no queue for any of them.

A follower is a position in the log. New events are read once for each followed selection of events, are
encoded once, and are kept for a few seconds as frames. A follower that is further behind reads the log itself until it
reaches them. So a slow follower costs no memory, and one that reconnects continues at its position, on whichever
server: the position is in the log, not in the server.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import NamedTuple

import orjson

from wtb.core.errors import InputError, NotFound, WTBError
from wtb.core.frozen import frozen
from wtb.hosting.api.streaming.pace import Pace
from wtb.hosting.api.threads import run_quickly
from wtb.operations.context import Context
from wtb.operations.identity import Follower
from wtb.operations.inspection.log import Page, Selection, events_after, last_event, sweeps_there
from wtb.operations.inspection.sweeps import status
from wtb.store.log import START, LogPosition

FRAME_VERSION = 1
SILENCE_S = 15.0  # until a comment is sent, so that no proxy considers the connection dead
KEPT_FRAMES = 50  # ten seconds of them, for those who are a little behind
MOST_SUBSCRIBERS = 400  # at a time
NOW = "now"
_ENDED_S = 0.5  # between two looks whether tokens were revoked, or sweeps deleted
_RETRY_S = 1.0  # while the database is out of reach
# At a time, of the threads for quick work.
_READS = 2  # of what is new
_CATCHING_UP = 2
_POSITION = re.compile(r"(-1|\d{1,19})-(\d{1,19})")
StillActive = Callable[[Collection[Follower]], Awaitable[set[Follower]]]
_log = logging.getLogger("wtb")


class Message(NamedTuple):
    """A message to a follower.

    Attributes:
        id: Its position in the log, to continue from.
        text: JSON, in one line.
    """

    id: str
    text: bytes


@frozen
class _Frame:
    """The selected events of one stretch of the log, after a position and up to another; None if there are none."""

    after: LogPosition
    upto: LogPosition
    message: Message | None


def read_position(text: str | None) -> LogPosition | None:
    """Parse a position, which is the id of a frame.

    Returns:
        The position, before all events if none is given, or None for `now`.

    Raises:
        InputError: If it is not one.
    """
    if not text:
        return START
    if text == NOW:
        return None
    match = _POSITION.fullmatch(text)
    if match is None or int(match[2]) >= 1 << 63 or int(match[1]) >= 1 << 63:
        detail = f"{text!r} is not a position in the log; expected the id of a message, or {NOW}"
        raise InputError(detail, argument="after")
    return int(match[1]), int(match[2])


def _frame(after: LogPosition, page: Page) -> _Frame:
    return _Frame(after, page.upto, message("events", page.upto, events=page.events) if page.events else None)


def message(kind: str, position: LogPosition, **content: object) -> Message:
    """Make a message of a kind with a position in the log."""
    id = "-".join(map(str, position))
    return Message(id, orjson.dumps({"version": FRAME_VERSION, "id": id, "type": kind, **content}, default=str))


class Tail:
    """The end of the log of one selection, up to the last read position."""

    def __init__(self, position: LogPosition) -> None:
        self.position = position
        self.followers = 0
        self.is_deleted = False
        self._frames: deque[_Frame] = deque(maxlen=KEPT_FRAMES)
        self._more = asyncio.Event()

    def add(self, frame: _Frame) -> None:
        """Add the next frame, and wake followers that wait."""
        self.position = frame.upto
        self._frames.append(frame)
        self.wake()

    def wake(self) -> None:
        """Wake followers that wait, so that they look again."""
        self._more.set()
        self._more = asyncio.Event()

    def after(self, position: LogPosition) -> _Frame | None:
        """Return the frame that continues a position, if it is kept."""
        return next((frame for frame in self._frames if frame.after == position), None)

    async def wait(self, most_s: float) -> None:
        """Wait until there may be more, but not for longer than some seconds."""
        # In Python 3.11 `wait_for` loses a cancellation that comes with the event, and the server never ends.
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._more.wait()


class Streams:
    """All streams of a server."""

    def __init__(self, context: Context, still_active: StillActive) -> None:
        """Make it; nothing is read until somebody follows.

        Args:
            context: The context of the logs.
            still_active: Returns those of the followers who may still follow.
        """
        self._context = context
        self._still_active = still_active
        self._owners: Counter[Follower] = Counter()
        self._ended: set[Follower] = set()
        self._tails: dict[Selection, Tail] = {}
        self._readers: dict[Selection, asyncio.Task[None]] = {}
        self._reads, self._catching_up = asyncio.Semaphore(_READS), asyncio.Semaphore(_CATCHING_UP)
        self.pace = Pace(context.database)
        self._closed = False

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read followed logs during the block."""
        ending = asyncio.create_task(self._end_some())
        try:
            async with self.pace.listen_for_changes():
                yield
        finally:
            self.close()
            for task in (ending, *self._readers.values()):
                task.cancel()

    @property
    def followers(self) -> int:
        """The number of followers."""
        return sum(tail.followers for tail in self._tails.values())

    def close(self) -> None:
        """End all streams. Followers reconnect and continue at their positions."""
        self._closed = True
        self._wake_all()

    async def follow(
        self, selection: Selection, after: LogPosition | None, max_behind: int | None, owner: Follower | None = None
    ) -> AsyncGenerator[Message | None, None]:
        """Yield messages from a position on, as long as the server runs, and None after each silence.

        Args:
            selection: The selection of events.
            after: The position to continue, or None for the end.
            max_behind: If the log is further ahead than so many events (of all sweeps), a `reset` with the status
                of the sweep comes in place of them. By default none is left out.
            owner: The follower, whose stream ends when they may no longer follow.

        Raises:
            NotFound: If the sweep was deleted.
            WTBError: If the database cannot be read.
        """
        async with self.tail(selection) as tail, self.owned(owner):
            position, sent_at = tail.position if after is None else after, monotonic()
            while not self.is_over(owner):
                if tail.is_deleted:
                    raise NotFound(f"sweep {selection.sweep} was deleted, and its events with it")
                is_too_far = max_behind is not None and tail.position[1] - position[1] > max_behind
                # A position beyond the end belongs to a log that was restored from a backup since, or to another
                # database.
                if is_too_far or position > tail.position:
                    position = tail.position
                    yield await self._reset(selection, position)
                frame = tail.after(position)
                if frame is None and position < tail.position:
                    frame = await self._catch_up(selection, position, tail.position)
                if frame is None:
                    await tail.wait(sent_at + SILENCE_S - monotonic())
                else:
                    position = frame.upto
                if frame is not None and frame.message is not None:
                    yield frame.message
                    sent_at = monotonic()
                elif monotonic() >= sent_at + SILENCE_S:
                    yield None
                    sent_at = monotonic()

    @asynccontextmanager
    async def tail(self, selection: Selection) -> AsyncIterator[Tail]:
        """Read a log during the block. The tail wakes its followers when there are new frames.

        Args:
            selection: The selection of events.
        """
        if selection not in self._tails:
            last = await run_quickly(last_event, self._context, selection)
            # Another follower may have added it while the database was read.
            if selection not in self._tails:
                self._tails[selection] = Tail(last)
                self._readers[selection] = asyncio.create_task(self._read(selection, self._tails[selection]))
        tail = self._tails[selection]
        tail.followers += 1
        try:
            yield tail
        finally:
            tail.followers -= 1
            if not tail.followers:
                del self._tails[selection]
                self._readers.pop(selection).cancel()

    async def position(self, selection: Selection) -> LogPosition:
        """Return the end of a log up to which it was read. Raises WTBError if it cannot be read."""
        tail = self._tails.get(selection)
        return tail.position if tail is not None else await run_quickly(last_event, self._context, selection)

    def is_over(self, owner: Follower | None) -> bool:
        """Return whether a follower's streams must end: the server does, or they may no longer follow."""
        return self._closed or owner in self._ended

    @asynccontextmanager
    async def owned(self, owner: Follower | None) -> AsyncIterator[None]:
        """Check during the block whether a follower may still follow."""
        if owner is None:
            yield
            return
        self._owners[owner] += 1
        try:
            yield
        finally:
            self._owners[owner] -= 1
            if not self._owners[owner]:
                del self._owners[owner]
                self._ended.discard(owner)

    def _wake_all(self) -> None:
        for tail in self._tails.values():
            tail.wake()

    async def _end_some(self) -> None:
        """End streams with revoked tokens, and of deleted sweeps."""
        while True:
            await asyncio.sleep(_ENDED_S)
            if not self._tails and not self._owners:
                continue
            try:
                owners, sweeps = set(self._owners), {selection.sweep for selection in self._tails}
                revoked = owners - await self._still_active(owners) if owners else set[Follower]()
                deleted = sweeps - await run_quickly(sweeps_there, self._context, sweeps)
            except WTBError as error:
                _log.warning("whether tokens were revoked or sweeps deleted is not known: %s", error)
                continue
            self._ended |= revoked
            for selection, tail in self._tails.items():
                tail.is_deleted |= selection.sweep in deleted
            if revoked or deleted:
                self._wake_all()

    async def _reset(self, selection: Selection, position: LogPosition) -> Message:
        document = await run_quickly(status, self._context, selection.sweep)
        return message("reset", position, status=document)

    async def _catch_up(self, selection: Selection, after: LogPosition, upto: LogPosition) -> _Frame:
        """Read the next events, no further than the shared reader, whose frames continue there."""
        async with self._catching_up:
            page = await run_quickly(partial(events_after, self._context, selection, after, until=upto))
            # In a thread, because encoding a large page would hold up all streams.
            return await run_quickly(_frame, after, page)

    async def _read(self, selection: Selection, tail: Tail) -> None:
        """Read new events of a followed log, again and again. No other log waits for it, however slow it is."""
        self.pace.quicken()
        while True:
            try:
                await self._read_on(selection, tail)
            except WTBError as error:
                _log.warning("streams wait: %s", error)
                await asyncio.sleep(_RETRY_S)
            await self.pace.wait()

    async def _read_on(self, selection: Selection, tail: Tail) -> None:
        is_last = False
        while not is_last:
            async with self._reads:
                page = await run_quickly(events_after, self._context, selection, tail.position)
                if page.upto > tail.position:
                    tail.add(await run_quickly(_frame, tail.position, page))
            is_last = page.is_last
