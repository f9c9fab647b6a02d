"""Identifiers of objects, unique across machines, and of executions, attempts and calls in traces."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from wtb.core.frozen import frozen

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"

DEFAULT_PROJECT = "default"  # the project of sessions and sweeps that name none


def plain_id(text: str) -> str:
    """Return an id that people write, as it is stored and compared: without surrounding spaces, in Unicode's form
    NFC.
    """
    return unicodedata.normalize("NFC", text.strip())


def _base32(number: int, digits: int) -> str:
    return "".join(_ALPHABET[(number >> 5 * place) & 31] for place in reversed(range(digits)))


def random_text(bits: int) -> str:
    """Return random bits as characters of ids, five bits each."""
    return _base32(secrets.randbits(bits), bits // 5)


class _Source:
    """A prefix of 35 bits of time and 45 random bits, drawn once in each process, and a counter."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # 45 random bits for each process and second: two machines do not need to know of each other.
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
    """Return 22 characters of lower-case base 32."""
    # A forked process has a copy of the source, whose next ids its parent gives as well.
    source = _source if _source.pid == os.getpid() else _new_source()
    return f"{source.prefix}{source.take(1):06x}"


def new_ids(count: int) -> Ids:
    """Return `count` consecutive ids, which are made when they are read."""
    source = _source if _source.pid == os.getpid() else _new_source()
    return Ids(source.prefix, source.take(count))


def _new_source() -> _Source:
    """Replace the source, which belongs to the process from which this one was forked."""
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
    """Return 12 characters for people to type: time in seconds, then 25 random bits.

    Equal ids of the same second are rarer than one in 33 million.
    """
    return _base32(int(time.time()), 7) + random_text(25)


def trace_id_of(sweep_id: str, case_number: int, repeat: int, combination: int | None = None) -> str:
    """Return the id of the trace of all executions with the same root.

    Args:
        sweep_id: The sweep.
        case_number: The number of its case.
        repeat: The repeat.
        combination: In a sweep that shares nothing, the combination of the root.
    """
    return _digest("trace", sweep_id, case_number, repeat, combination)[:32]


def span_id_of(kind: str, *names: object) -> str:
    """Return the id of a span: of an execution, an attempt or a call, by the names that identify it among its kind."""
    return _digest("span", kind, *names)[:16]


def attempt_span_id(node_run_id: str, number: int) -> str:
    """Return the id of the span of an attempt."""
    return span_id_of("attempt", node_run_id, number)


def traceparent_of(place: str) -> str:
    """Return the header by which spans of other programs refer to the attempt that encloses them.

    Args:
        place: The names that identify the trace of an attempt, and those that identify the attempt, with `;` between.
    """
    # The names are joined by spaces in `_digest`, so hashing them joined gives the ids of the functions above.
    trace, _, attempt = place.partition(";")
    return f"00-{_digest('trace', trace)[:32]}-{_digest('span', 'attempt', attempt)[:16]}-01"


def _digest(*names: object) -> str:
    return hashlib.sha256(" ".join(map(str, names)).encode()).hexdigest()


_ids: ContextVar[Mapping[str, str]] = ContextVar("log_ids", default={})  # noqa: B039 - nobody changes it


def current_log_ids() -> Mapping[str, str]:
    """Return the ids of the current work of this thread or task, such as `sweep` and `execution`."""
    return _ids.get()


@contextmanager
def log_ids(**ids: str | None) -> Iterator[None]:
    """Add ids to the log lines of the block; None for an unknown id."""
    token = _ids.set({**_ids.get(), **{name: id for name, id in ids.items() if id is not None}})
    try:
        yield
    finally:
        _ids.reset(token)
