"""Wait for a condition: the only module of the tests that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 120.0  # before a condition counts as never met, on a machine that does other things too
PAUSE_S = 0.005


def until(
    condition: Callable[[], Any],
    what: str = "a condition",
    patience: float = PATIENCE_S,
    *,
    pause: float = PAUSE_S,
    share: float = 1.0,
    meanwhile: Callable[[], object] = lambda: None,
    report: Callable[[], str] = lambda: "",
) -> Any:
    """Poll until a condition holds, and return its value.

    Args:
        condition: Holds if its value is true.
        what: Names the condition in the error.
        patience: Seconds after which the condition counts as never met.
        pause: Seconds between two checks, at least.
        share: The largest share of the time that checks may take: less than 1 if a check is work for a busy machine.
        meanwhile: Called after each check that failed.
        report: Adds to the error what the condition may be waiting for.

    Raises:
        AssertionError: The condition does not hold after so many seconds.
    """
    began = checked = time.monotonic()
    while not (outcome := condition()):
        took = time.monotonic() - checked
        assert checked + took < began + patience, f"still waiting after {patience:g} s: {what}\n{report()}".rstrip()
        meanwhile()
        time.sleep(max(pause, took * (1 / share - 1)))
        checked = time.monotonic()
    return outcome


async def until_async(
    condition: Callable[[], Any], what: str = "a condition", patience: float = PATIENCE_S, *, pause: float = PAUSE_S
) -> Any:
    """Poll like `until`, and leave the event loop to other tasks meanwhile."""
    began = time.monotonic()
    while not (outcome := condition()):
        assert time.monotonic() < began + patience, f"still waiting after {patience:g} s: {what}"
        await asyncio.sleep(pause)
    return outcome
