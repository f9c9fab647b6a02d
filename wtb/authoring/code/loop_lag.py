"""How late an event loop is: what a node run that awaits on it waits for the loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import NamedTuple

TICK_S = 0.02  # between two moments at which the loop should call back


class LagSum(NamedTuple):
    """Moments at which the loop should have called back, and by how many seconds it was late at them together."""

    moments: int
    seconds: float


class LagMeter:
    """Measures how late a loop is while something runs on it.

    The loop should call back at moments that are `TICK_S` apart. If it is blocked for longer than that, all moments of
    the block count, each with its own delay: the mean is over time, not over callbacks. Use it on the thread of the
    loop only.

    Args:
        loop: The loop.
        is_used: Returns whether anything runs on the loop. As long as nothing does, the meter rests.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_used: Callable[[], bool]) -> None:
        self._loop = loop
        self._is_used = is_used
        self._due: float | None = None  # the next moment
        self._moments, self._seconds = 0, 0.0

    def start(self) -> None:
        """Measure as long as something runs on the loop."""
        if self._due is None:
            self._due = self._loop.time() + TICK_S
            self._call_back()

    def read(self) -> LagSum:
        """Return the sum so far. Moments that are due count as if the loop called back now."""
        if self._due is not None and (late := self._loop.time() - self._due) >= 0:
            moments = int(late / TICK_S) + 1
            self._moments += moments
            self._seconds += moments * late - TICK_S * moments * (moments - 1) / 2
            self._due += moments * TICK_S
        return LagSum(self._moments, self._seconds)

    def mean_since(self, before: LagSum) -> float | None:
        """Return how many seconds the loop was late on average; None if no moment was due."""
        now = self.read()
        moments = now.moments - before.moments
        return (now.seconds - before.seconds) / moments if moments else None

    def _call_back(self) -> None:
        assert self._due is not None, "the meter measures"
        # In an empty context: the callback belongs to no node run.
        self._loop.call_at(self._due, self._tick, context=Context())

    def _tick(self) -> None:
        self.read()
        if self._is_used():
            self._call_back()
        else:
            self._due = None
