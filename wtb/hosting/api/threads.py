"""Threads for quick work, such as checking identities and reading logs. Long operations never hold them up."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

# At a time. Their sum is smaller than the pool of connections, so that no thread waits for one.
OPERATIONS = 6
LONG = 4  # of operations that may take longer than a request
QUICK = 4
_limiter: RunVar[CapacityLimiter] = RunVar("quick")
R = TypeVar("R")


async def run_quickly(function: Callable[..., R], *args: object) -> R:
    """Run a quick function in a thread, beside operations instead of behind them.

    Args:
        function: The function.
        args: Its arguments.

    Returns:
        Its result.
    """
    limiter = _limiter.get(None)
    if limiter is None:
        limiter = CapacityLimiter(QUICK)
        _limiter.set(limiter)
    return await run_sync(function, *args, limiter=limiter)
