"""Durations and sizes as people write them: `1.5h`, `500MB`. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

MOST_SLOTS = 1_000  # node runs at a time of one command or worker: each takes a thread, and maybe a process
LONGEST_S = 366 * 86400.0  # less than what any timer or lock in use can wait
EXPECTED = "a positive size, such as 500MB, 1.5GB, 2GiB, or a whole number of bytes"
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,12})?)\s*(?:([kmgt]?)(i?)b)?", re.IGNORECASE)
_LARGEST = 2**63 - 1  # the largest integer of a database column
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, None: 1.0}
_LONGEST_NUMBER = 1e15


def parse_duration(duration: object) -> float:
    """Read a duration.

    Args:
        duration: A number of seconds, or text such as 20ms, 60s, 2m, 1.5h, 7d or 2w.

    Returns:
        Seconds.

    Raises:
        ValueError: It is no duration.
    """
    if isinstance(duration, int | float) and not isinstance(duration, bool) and abs(duration) <= _LONGEST_NUMBER:
        return float(duration)
    if isinstance(duration, str) and (match := _DURATION.fullmatch(duration.strip())):
        return float(match[1]) * _SECONDS[match[2]]
    raise ValueError(f"{duration!r:.80} is not a duration")


def parse_size(size: str | int) -> int:
    """Read a size.

    Args:
        size: A number of bytes, or text: kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB of 1024; upper
            or lower case.

    Returns:
        Bytes, at least 1.

    Raises:
        ValueError: It is no size; the message says what is expected.
    """
    amount = size if isinstance(size, int) and not isinstance(size, bool) else 0
    if isinstance(size, str) and (match := _SIZE.fullmatch(size.strip())):
        number, prefix, binary = match[1], (match[2] or "").lower(), bool(match[3])
        # `1iB` is no unit, and a fraction of a byte no size.
        if (not binary or prefix) and ("." not in number or prefix):
            amount = int(Decimal(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))
    if not 0 < amount <= _LARGEST:
        raise ValueError(f"{size!r:.80} is not a size; expected {EXPECTED}")
    return amount
