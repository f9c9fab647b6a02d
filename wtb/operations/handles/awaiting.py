"""Looking without blocking the event loop: threads step what reads a database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from wtb.core.documents.events import EventDocument
from wtb.operations.context import Context
from wtb.operations.inspection.log import follow_events

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
    async for batch in each(follow_events(context, ref, severity=severity, kinds=kinds, values=values)):
        if batch is None:
            await asyncio.sleep(interval_s)
        for event in batch or ():
            yield event


async def each(steps: Iterator[T]) -> AsyncIterator[T]:
    """Yield what an iterator does, whose steps block for a moment."""
    loop = asyncio.get_running_loop()
    while step := await loop.run_in_executor(_LOOKING, _take_one, steps):
        yield step[0]


def _take_one(steps: Iterator[T]) -> list[T]:
    return list(islice(steps, 1))
