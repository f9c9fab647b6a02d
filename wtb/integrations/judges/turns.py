"""Turns at a model: so many requests a minute, of all processes that share the folder in which replies are kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from wtb.core.errors import WTBError

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where no files are stored that could be shared
    import fcntl

_LONGEST_S = 86_400.0  # to the next turn: one that is further away was written by a clock that was ahead
_of_process: dict[str, float] = {}  # where there is no folder
_changes = threading.Lock()


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
        turn = turns.next if now <= turns.next <= now + _LONGEST_S else now
        if turn - now >= left_s:
            raise NoTurn(f"no turn came in time, at {per_minute:g} requests a minute")
        turns.next = turn + 60 / per_minute
    time.sleep(max(0.0, turn - time.time()))


class _Turns:
    """When the next turn is, in seconds since the epoch."""

    def __init__(self, next_turn: float) -> None:
        self.next = next_turn


@contextlib.contextmanager
def _turns(name: str, place: Path | None) -> Iterator[_Turns]:
    """The turns of a name, for one process and thread at a time."""
    if place is None:
        with _changes:
            turns = _Turns(_of_process.get(name, 0.0))
            yield turns
            _of_process[name] = turns.next
        return
    place.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(name.encode()).hexdigest()
    with (place / f"turns-{digest}").open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        turns = _Turns(_number(os.pread(file.fileno(), 64, 0)))
        yield turns
        file.truncate(0)
        file.write(repr(turns.next).encode())


def _number(written: bytes) -> float:
    try:
        return float(written)
    except ValueError:  # of a process that was killed while it wrote
        return 0.0
