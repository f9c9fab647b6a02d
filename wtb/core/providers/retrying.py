"""Trying a call again that a provider failed, outside of nodes: in evaluators and judges."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from wtb.core.errors import FinalError
from wtb.core.failures import Failure
from wtb.core.providers.faults import is_lasting

PAUSES_S = (1.0, 4.0)  # before another try, unless the provider states a longer time
Returned = TypeVar("Returned")


def call_again(call: Callable[[float], Returned], longest_s: float) -> Returned:
    """Make a call, again if a provider fails it, and return its result.

    Args:
        call: Takes the seconds that have passed since the first try.
        longest_s: Seconds after which no other try begins.

    Returns:
        What the call returned.

    Raises:
        Exception: The error of the last try.
    """
    began_at, used_s = time.monotonic(), 0.0
    for pause_s in (*PAUSES_S, math.inf):
        try:
            return call(used_s)
        except Exception as error:
            fault = None if isinstance(error, FinalError) else Failure.of(error).provider
            if fault is None or is_lasting(fault):
                raise
            wait_s = max(pause_s, fault["retry_after_s"] or 0.0)
            if wait_s >= longest_s - (time.monotonic() - began_at):
                raise
        time.sleep(wait_s)
        used_s = time.monotonic() - began_at
    raise AssertionError("the last pause never ends")
