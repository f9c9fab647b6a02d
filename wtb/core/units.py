"""Sizes as people write them, `500MB` or `1.5 GiB`, and how many slots a pool may have. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

MOST_SLOTS = 1_000  # node runs at a time of one command or worker: each takes a thread, and maybe a process
EXPECTED = "a positive size, such as 500MB, 1.5GB, 2GiB, or a whole number of bytes"
_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,12})?)\s*(?:([kmgt]?)(i?)b)?", re.IGNORECASE)
_LARGEST = 2**63 - 1  # what a database column holds


def parse_size(given: str | int) -> int:
    """Bytes. kB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB of 1024; upper or lower case.

    Raises ValueError that says what is expected.
    """
    amount = given if isinstance(given, int) and not isinstance(given, bool) else 0
    if isinstance(given, str) and (match := _SIZE.fullmatch(given.strip())):
        number, prefix, binary = match[1], (match[2] or "").lower(), bool(match[3])
        if (not binary or prefix) and ("." not in number or prefix):
            amount = int(Decimal(number) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))
    if not 0 < amount <= _LARGEST:
        raise ValueError(f"{given!r:.80} is not a size; expected {EXPECTED}")
    return amount
