"""Turns at a model: so many requests a minute, of all processes that share the folder in which replies are kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from wtb.core.errors import WTBError

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where no files are stored that could be shared
    import fcntl

_LONGEST_S = 86_400.0  # to the next turn: one that is further away was written by a clock that was ahead
_SKEW_S = (
    60.0  # between the clocks of machines that share a folder: a turn taken later was written by one that was ahead
)
_changes = threading.Lock()
_of_process: dict[str, _Turns] = {}  # where there is no folder


class NoTurn(WTBError):
    """No turn comes in time."""


def wait_for_turn(name: str, per_minute: float, left_s: float, place: Path | None) -> None:
    """Wait until a request may be sent.

    Args:
        name: What has the rate: the same for all that share it.
        per_minute: Requests a minute, evenly spaced.
        left_s: Seconds that may be waited.
        place: The folder that processes share; without one it is the rate of this process.

    Raises:
        NoTurn: It would come later; none is taken then.
    """
    with _turns(name, place) as turns:
        now = time.time()
        is_possible = now <= turns.next <= now + _LONGEST_S and turns.taken_at <= now + _SKEW_S
        turn = turns.next if is_possible else now
        if turn - now >= left_s:
            raise NoTurn(f"no turn came in time, at {per_minute:g} requests a minute")
        turns.next, turns.taken_at = turn + 60 / per_minute, now
    time.sleep(max(0.0, turn - time.time()))


@dataclass
class _Turns:
    """The turns of a name.

    Attributes:
        next: When the next one is, in seconds since the epoch.
        taken_at: When the latest one was taken.
    """

    next: float = 0.0
    taken_at: float = 0.0


@contextlib.contextmanager
def _turns(name: str, place: Path | None) -> Iterator[_Turns]:
    """The turns of a name, for one process and thread at a time."""
    if place is None:
        with _changes:
            yield _of_process.setdefault(name, _Turns())
        return
    place.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(name.encode()).hexdigest()
    with (place / f"turns-{digest}").open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        turns = _read(os.pread(file.fileno(), 64, 0))
        yield turns
        file.truncate(0)
        file.write(f"{turns.next!r} {turns.taken_at!r}".encode())


def _read(written: bytes) -> _Turns:
    try:
        return _Turns(*map(float, written.split()))
    except (ValueError, TypeError):  # of a process that was killed while it wrote
        return _Turns()
