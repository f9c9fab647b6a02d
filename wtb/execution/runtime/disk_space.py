"""Waiting for room: work pauses while a disk is full or files are unreachable."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wtb.core.stop import Stop

LOOK_S = 1.0  # between two looks at the disks
FIRST_S = 1.0  # before something is tried again; twice as much each time, up to the longest
LONGEST_S = 60.0
BLIND_S = 600.0  # until it is tried again although no disk is seen to have more room
DATABASE_BLIND_S = 20.0  # the same of a database, whose disk may be another machine's, and which runs no node again
MORE = 1 << 16  # bytes that are more room


def disks(*places: Path) -> tuple[Path, ...]:
    """The places that may be full: these, the one for temporary files, and the working directory."""
    return (*places, Path(tempfile.gettempdir()), Path.cwd())


class Watch:
    """Looks from the moment at which a disk was full whether there is more room.

    tries: how often it was full. blind_s: until it is worth trying again although nothing is seen to have changed.
    """

    def __init__(self, places: Sequence[Path], tries: int = 0, blind_s: float = BLIND_S) -> None:
        self._places = places
        self._before = self._free()
        begun = time.monotonic()
        self._not_before = begun + min(LONGEST_S, FIRST_S * 2**tries)
        self._at_last = begun + blind_s

    def sees_room(self) -> bool:
        """Return whether it is worth trying again."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        if now >= self._at_last:
            return True
        free = self._free()
        # The least that there was counts: what others remove meanwhile is room, too.
        grown = any(free[place] > before + MORE for place, before in self._before.items())
        self._before = {place: min(before, free[place]) for place, before in self._before.items()}
        return grown

    def _free(self) -> dict[Path, int]:
        return {place: _free(place) for place in self._places}


def _free(place: Path) -> int:
    """Bytes that this user can still write there; of what is not there, where it would be made; -1 out of reach."""
    for folder in (place, *place.parents):
        try:
            found = os.statvfs(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return -1
        return found.f_bavail * found.f_frsize
    return -1


class Room:
    """Pauses the threads of a run while a disk is full, and reports when that begins and ends."""

    def __init__(
        self, places: Sequence[Path], stop: Stop, begins: Callable[[str], None], ends: Callable[[], None]
    ) -> None:
        self._places = places
        self.stop = stop
        self._begins = begins
        self._ends = ends
        self._waiting = 0
        self._lock = threading.Lock()

    def wait(self, why: str, tries: int = 0, blind_s: float = BLIND_S) -> None:
        """Wait until it is worth trying again (see `Watch`). Raises Stopped if the run is stopped meanwhile."""
        watch = Watch(self._places, tries, blind_s)
        with self._lock:
            self._waiting += 1
            first = self._waiting == 1
        if first:
            self._begins(why)
        try:
            while not watch.sees_room():
                self.stop.wait(LOOK_S)
        finally:
            with self._lock:
                self._waiting -= 1
                last = not self._waiting
            if last:
                self._ends()


class NoRoom:
    """Does not wait: work that found a disk full is released, for others or for this process later."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def wait(self, why: str, tries: int = 0, blind_s: float = BLIND_S) -> None:
        """Raises Stopped."""
        self.stop.request(why, full=True)
        self.stop.check()
