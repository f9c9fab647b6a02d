"""The time after which a server accepts another request, as its response states it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

_LONGEST_S = 7 * 86_400.0  # a server that states more is not believed
_DELAY = re.compile(r"\d+(?:\.\d+)?s")  # a duration of Google's `RetryInfo`


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Read the headers of a response.

    Args:
        headers: The headers, by name in any case.

    Returns:
        Seconds from now; None if the headers state no time that can be read.
    """
    values = {str(name).lower(): str(value).strip() for name, value in headers.items()}
    if (milliseconds := _number(values.get("retry-after-ms", ""))) is not None:
        return _bounded(milliseconds / 1000)
    text = values.get("retry-after", "")
    seconds = _number(text)
    if seconds is None:
        until = _moment(text)
        if until is None:
            return None
        sent = _moment(values.get("date", ""))  # the server's clock, which may differ from ours
        seconds = until - (time.time() if sent is None else sent)
    return _bounded(seconds)


def delay_of(details: object) -> float | None:
    """Read the `RetryInfo` of a Google API error.

    Args:
        details: The decoded body of the error.

    Returns:
        Seconds from now; None if there is no such detail.
    """
    error = details.get("error", details) if isinstance(details, Mapping) else details
    listed = error.get("details") if isinstance(error, Mapping) else error
    for detail in listed if isinstance(listed, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and _DELAY.fullmatch(delay):
            return _bounded(float(delay[:-1]))
    return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _moment(text: str) -> float | None:
    """Read an HTTP date as seconds since the epoch."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float) -> float | None:
    return max(0.0, seconds) if seconds <= _LONGEST_S else None
