"""Identifiers made without asking anybody: unique across machines, in order of time within a process."""

from __future__ import annotations

import itertools
import os
import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def _base32(number: int, digits: int) -> str:
    return "".join(_ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(digits)))


class _Source:
    """A prefix of 35 bits of time and 45 random bits, drawn anew in each process, and a counter."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.prefix = _base32(int(time.time()), 7) + _base32(secrets.randbits(45), 9)
        self.counter = itertools.count()


_source = _Source()


def new_id() -> str:
    """22 characters of lower-case base 32."""
    global _source
    if _source.pid != os.getpid():
        _source = _Source()
    return f"{_source.prefix}{next(_source.counter):06x}"


def short_id() -> str:
    """12 characters for what people type: time in seconds, then 25 random bits, so that two of one second that are
    alike are rarer than one in 33 million."""
    return _base32(int(time.time()), 7) + _base32(secrets.randbits(25), 5)
