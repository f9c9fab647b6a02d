"""Threads for what is quick: who asks, and what is new in a log. Operations that take long never hold them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

# At a time; together fewer than the pool has connections.
OPERATIONS = 6
LONG = 4  # of operations that may take longer than a request
QUICK = 4
_limiter: RunVar[CapacityLimiter] = RunVar("quick")
R = TypeVar("R")


async def run_quickly(function: Callable[..., R], *args: object) -> R:
    """Run a function that is quick in a thread, beside operations and not behind them.

    Args:
        function: It.
        args: What it takes.

    Returns:
        What it returned.
    """
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(QUICK)
        _limiter.set(limiter)
    return await run_sync(function, *args, limiter=limiter)
