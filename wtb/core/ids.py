"""Identifiers made without asking anybody: unique across machines, in order of time within a process."""

from __future__ import annotations

import os
import secrets
import threading
import time
import unicodedata

from wtb.core.classes.frozen import frozen

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

DEFAULT_PROJECT = "default"  # of sessions and sweeps that name none


def plain_id(text: str) -> str:
    """An id that people write, as it is stored and compared: without spaces around it, in Unicode's form NFC."""
    return unicodedata.normalize("NFC", text.strip())


def _base32(number: int, digits: int) -> str:
    return "".join(_ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(digits)))


def random_text(bits: int) -> str:
    """Return random bits as characters of ids, of which each has five."""
    return _base32(secrets.randbits(bits), bits // 5)


class _Source:
    """A prefix of 35 bits of time and 45 random bits, drawn anew in each process, and a counter."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.prefix = _base32(int(time.time()), 7) + random_text(45)
        self.counter = 0
        self.lock = threading.Lock()

    def take(self, count: int) -> int:
        with self.lock:
            first = self.counter
            self.counter += count
        return first


_source = _Source()


def new_id() -> str:
    """22 characters of lower-case base 32."""
    source = _source if _source.pid == os.getpid() else _new_source()
    return f"{source.prefix}{source.take(1):06x}"


def new_ids(count: int) -> Ids:
    """So many ids that follow each other; they are made when they are asked for."""
    source = _source if _source.pid == os.getpid() else _new_source()
    return Ids(source.prefix, source.take(count))


def _new_source() -> _Source:
    """Replace the source of a process that this one was forked from."""
    global _source
    _source = _Source()
    return _source


@frozen(slots=True)
class Ids:
    """Ids by their place in the order of time."""

    prefix: str
    first: int

    def __getitem__(self, place: int) -> str:
        return f"{self.prefix}{self.first + place:06x}"


def short_id() -> str:
    """12 characters for what people type: time in seconds, then 25 random bits, so that two of one second that are
    alike are rarer than one in 33 million."""
    return _base32(int(time.time()), 7) + random_text(25)
