"""Events from now on, for programs that react to them, and without blocking the event loop."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from wtb.core.documents.all_events import EventDocument
from wtb.core.errors import WTBError
from wtb.core.frozen import frozen
from wtb.operations.context import Context
from wtb.operations.inspection import log as logs
from wtb.store.log import LogPosition
from wtb.store.read.activity import LivelySweep, Moment, lively_sweeps, read_moment
from wtb.store.tables.sweeps import EventRow


@frozen
class _EndedSweep:
    """A sweep that has ended, and the newest transaction that may have written its end."""

    sweep: LivelySweep
    newest: int
    is_read: bool


class EventsFromNow:
    """The events of a database after its creation. Each comes once, in the order of the log."""

    def __init__(
        self, context: Context, *, severity: str = "debug", kinds: Sequence[str] = (), values: bool = False
    ) -> None:
        """Note the end of the log.

        Args:
            context: Where.
            severity: The least that is returned: debug, info, warning or error.
            kinds: Prefixes of the kinds of events; by default all.
            values: Add what nodes wrote, results, and the arguments of tools.

        Raises:
            InputError: If there is no such severity.
        """
        self._context, self._kinds, self._values = context, tuple(kinds), values
        self._severities = logs.severities_from(severity)
        self._start = read_moment(context.database).position
        self._positions: dict[str, LogPosition] = {}
        self._ended: dict[str, _EndedSweep] = {}

    def read_new(self) -> Iterator[EventDocument]:
        """Yield the events since the last call.

        Raises:
            WTBError: If the database cannot be read; what was not yielded comes the next time.
        """
        try:
            # Each sweep's log is ordered; merging them gives one order without reading everything first.
            rows = heapq.merge(*map(self._rows_of, self._sweeps_with_news()), key=logs.position_of)
            while part := list(islice(rows, logs.PART)):
                yield from self._take(part)
        except WTBError:
            self._ended.clear()  # some were noted as read
            raise

    def _take(self, rows: Sequence[EventRow]) -> list[EventDocument]:
        """Return the matching events, and continue after them the next time."""
        matching = [row for row in rows if logs.matches(row["kind"], row["severity"], self._severities, self._kinds)]
        events = [logs.event_document(row) for row in matching]
        if self._values:
            events = list(logs.with_values(self._context.database, events))
        self._positions |= {row["sweep_id"]: logs.position_of(row) for row in rows}
        return events

    def _rows_of(self, sweep_id: str) -> Iterator[EventRow]:
        for page in logs.read_pages(self._context.database, sweep_id, self._positions.get(sweep_id, self._start)):
            yield from page

    def _sweeps_with_news(self) -> list[str]:
        """Return the sweeps that are open, and ended ones that were not read to the end since."""
        sweeps, news, ended = lively_sweeps(self._context.database), list[str](), dict[str, _EndedSweep]()
        # After the list of sweeps: an event that is committed in between is read the next time, never skipped.
        moment = read_moment(self._context.database)
        for sweep in sweeps:
            before = self._ended.get(sweep.id)
            newest = moment.newest if before is None or before.sweep != sweep else before.newest
            if sweep.is_open:
                news.append(sweep.id)
            elif before is None or before.sweep != sweep or not before.is_read:
                news.append(sweep.id)
                # Else its last events may come after an older transaction that is still open, and cannot be read yet.
                ended[sweep.id] = _EndedSweep(sweep, newest, is_read=moment.settled >= newest)
            else:
                ended[sweep.id] = before
        self._ended = ended
        return news


def is_readable(context: Context, moment: Moment) -> bool:
    """Return whether all events that were committed until a moment can be read."""
    return read_moment(context.database).settled >= moment.newest


T = TypeVar("T")

# Looks take milliseconds. They have threads of their own, so that tasks that wait leave the loop's default ones free.
_LOOKING = ThreadPoolExecutor(max_workers=4, thread_name_prefix="wtb-look")


async def follow_async(
    context: Context, ref: str, *, severity: str, kinds: Sequence[str], interval_s: float, values: bool
) -> AsyncIterator[EventDocument]:
    """Yield the events of a sweep or an execution as `log` does that follows it, without blocking the event loop.

    Args:
        context: Where.
        ref: A sweep, or an execution whose events alone are meant: its id, the beginning of it, or a name.
        severity: The least that is returned: debug, info, warning or error.
        kinds: What their kinds begin with; nothing for all.
        interval_s: Seconds between two looks.
        values: Add what nodes wrote, results, and the arguments of tools.

    Raises:
        InputError: If there is no such sweep, execution or severity.
    """
    async for batch in each(logs.follow_events(context, ref, severity=severity, kinds=kinds, values=values)):
        if batch is None:
            await asyncio.sleep(interval_s)
        for event in batch or ():
            yield event


async def each(steps: Iterator[T]) -> AsyncIterator[T]:
    """Yield the elements of an iterator whose steps block for a moment."""
    loop = asyncio.get_running_loop()
    # A list of one, because `None` is an element that callers wait on.
    while step := await loop.run_in_executor(_LOOKING, list, islice(steps, 1)):
        yield step[0]
