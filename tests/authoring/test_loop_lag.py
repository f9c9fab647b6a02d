"""The lag of an event loop is measured by the moments at which it should have called back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from wtb.authoring.code.calling import TICK_S, LagMeter, LagSum, LoopThread, lag_of_loop


class Loop:
    """A loop with a clock that a test sets, and one callback that waits."""

    def __init__(self) -> None:
        self.now = 100.0
        self.at: float | None = None
        self._callback: Callable[[], None] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, callback: Callable[[], None], *, context: Any) -> None:
        assert self.at is None, "one callback waits at a time"
        self.at, self._callback = at, callback

    def turn(self, late: float) -> None:
        """Call back a number of seconds after the requested moment."""
        assert self.at is not None
        assert self._callback is not None
        self.now, callback, self.at = self.at + late, self._callback, None
        callback()


def test_each_moment_of_a_block_counts_with_its_own_delay() -> None:
    loop = Loop()
    meter = LagMeter(loop, lambda: True)  # type: ignore[arg-type]
    meter.start()
    before = meter.read()
    loop.turn(late=0.0)
    loop.turn(late=2.5 * TICK_S)  # at the next three moments it was 2.5, 1.5 and 0.5 ticks late
    assert meter.mean_since(before) == pytest.approx(4.5 * TICK_S / 4)
    loop.turn(late=0.0)
    assert meter.read() == (5, pytest.approx(4.5 * TICK_S))


def test_moments_that_are_due_count_before_the_loop_calls_back() -> None:
    loop = Loop()
    meter = LagMeter(loop, lambda: True)  # type: ignore[arg-type]
    meter.start()
    before = meter.read()
    assert meter.mean_since(before) is None, "no moment was due"
    loop.now += 2.5 * TICK_S
    assert meter.mean_since(before) == pytest.approx(TICK_S)
    assert meter.mean_since(meter.read()) is None
    loop.turn(late=2 * TICK_S)
    assert meter.read().moments == 3


def test_a_meter_rests_while_nothing_runs() -> None:
    loop, used = Loop(), [True]
    meter = LagMeter(loop, used.pop)  # type: ignore[arg-type]
    meter.start()
    meter.start()
    loop.turn(late=0.0)
    used.append(False)
    loop.turn(late=0.0)
    assert loop.at is None
    loop.now += 10.0
    assert meter.read() == LagSum(2, pytest.approx(0.0))
    meter.start()
    assert loop.at == loop.now + TICK_S


def test_a_call_that_awaits_sees_the_lag_that_another_one_makes() -> None:
    async def wait() -> float | None:
        meter = lag_of_loop()
        assert meter is not None
        before = meter.read()
        await asyncio.sleep(0.3)
        return meter.mean_since(before)

    async def burn() -> None:
        await asyncio.sleep(0.05)
        time.sleep(0.2)

    thread = LoopThread()
    try:
        waiting, burning = thread.begin(wait(), None).future, thread.begin(burn(), None).future
        burning.result(20)
        seconds = waiting.result(20)
    finally:
        thread.close()
    assert seconds is not None
    assert seconds > 0.04  # a block of 0.2 s in 0.3 s: 0.067 s on average


def test_code_that_runs_on_no_shared_loop_has_no_meter() -> None:
    async def look() -> LagMeter | None:
        return lag_of_loop()

    assert asyncio.run(look()) is None
