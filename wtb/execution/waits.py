"""Waits of a runner: for providers that fail, and for room while a disk is full or files are unreachable."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from wtb.core.provider_faults import ProviderFault, is_lasting, wait_s, waiting_for
from wtb.core.stop import Stop, Stopped

LASTING_TRIES = 3  # of a request that a provider rejects for a reason that waiting does not change
LONE_TRIES = 6  # of a request that a provider fails while it serves others like it
NOTICE_S = 30.0  # between two notices about one provider
_LOOK_S = 1.0  # between two looks at what people ask of the execution


class ProviderWaits:
    """The experience of a sweep's node runs in this process with their providers. Threads share it.

    Args:
        stop: Requested if the sweep has to pause.
        longest_s: Seconds that a node run waits at most.
        notify: Called with a line to show to people.
    """

    def __init__(self, stop: Stop, longest_s: float, notify: Callable[[str], None]) -> None:
        self.stop = stop
        self.longest_s = longest_s
        self.served: Counter[tuple[str, str]] = Counter()  # (node, variant) -> node runs that succeeded
        self._notify = notify
        self._noticed_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def notice(self, fault: ProviderFault, seconds: float) -> None:
        """Show, at most every `NOTICE_S` seconds, that node runs wait for a provider."""
        now = time.monotonic()
        with self._lock:
            due = now - self._noticed_at.get(fault["provider"], -NOTICE_S) >= NOTICE_S
            if due:
                self._noticed_at[fault["provider"]] = now
        if due:
            self._notify(f"{waiting_for(fault)}: the next try is in {seconds:.0f} s")


class ProviderWait:
    """The waits of one node run.

    Args:
        waits: Those of its sweep.
        node: The node and its variant.
        is_second: Whether the node run has waited in vain under an earlier claim.
    """

    def __init__(self, waits: ProviderWaits, node: tuple[str, str], *, is_second: bool) -> None:
        self._waits = waits
        self._node = node
        self._is_second = is_second
        self._tries = 0
        self._began_at = 0.0
        self._served_before = 0

    def next_wait_s(self, fault: ProviderFault) -> float | None:
        """Decide what follows a fault.

        Args:
            fault: The fault that ended the latest attempt.

        Returns:
            Seconds to wait before the next attempt; None if the node run has failed for good.

        Raises:
            Stopped: The provider fails everyone, so the sweep pauses.
        """
        now = time.monotonic()
        if not self._tries:
            self._began_at, self._served_before = now, self._waits.served[self._node]
        self._tries += 1
        seconds = wait_s(fault, self._tries)
        # If the same variant succeeded meanwhile, the provider works, and the request itself is probably at fault.
        serves_others = self._waits.served[self._node] > self._served_before
        if is_lasting(fault):
            is_over = self._tries >= LASTING_TRIES
        else:
            is_over = now + seconds - self._began_at > self._waits.longest_s
            # Under a rate limit some requests succeed while others wait, so their success proves nothing.
            is_limited = fault["reason"] in ("rate_limit", "overloaded")
            is_over = is_over or (serves_others and not is_limited and self._tries >= LONE_TRIES)
        if not is_over:
            return seconds
        # A node run pauses the sweep once. If it waits in vain again after `wtb resume`, it has failed.
        if serves_others or self._is_second:
            return None
        self._waits.stop.request(waiting_for(fault))
        self._waits.stop.check()
        return None

    def sleep(self, fault: ProviderFault, seconds: float, is_wanted: Callable[[], bool]) -> None:
        """Wait before the next attempt.

        Args:
            fault: The fault that ended the latest attempt.
            seconds: How long to wait.
            is_wanted: Returns whether a person wants the execution to pause or to end.

        Raises:
            Stopped: A stop is requested, of the sweep or of the execution.
        """
        self._waits.notice(fault, seconds)
        until = time.monotonic() + seconds
        while (seconds_left := until - time.monotonic()) > 0:
            if is_wanted():
                raise Stopped("a person asked for the execution")
            self._waits.stop.wait(min(seconds_left, _LOOK_S))


LOOK_S = 1.0  # between two looks at the disks
FIRST_S = 1.0  # before something is tried again; twice as much each time, up to the longest
LONGEST_S = 60.0
BLIND_S = 600.0  # until it is tried again although no disk is seen to have more room
DATABASE_BLIND_S = 20.0  # the same of a database, whose disk may be another machine's, and which runs no node again
MORE = 1 << 16  # bytes that are more room


def disks(*places: Path) -> tuple[Path, ...]:
    """Return the places that may be full: these, the one for temporary files, and the working directory."""
    return (*places, Path(tempfile.gettempdir()), Path.cwd())


class Watch:
    """Checks, from the moment at which a disk was full, whether there is more room.

    Args:
        places: The places that may be full.
        tries: How often the disk was full before.
        blind_s: Seconds until another try although no place has more room.
    """

    def __init__(self, places: Sequence[Path], tries: int = 0, blind_s: float = BLIND_S) -> None:
        self._places = places
        self._before = self._free()
        started = time.monotonic()
        self._not_before = started + min(LONGEST_S, FIRST_S * 2**tries)
        self._at_last = started + blind_s

    def sees_room(self) -> bool:
        """Return whether it is worth trying again."""
        now = time.monotonic()
        if now < self._not_before:
            return False
        if now >= self._at_last:
            return True
        free = self._free()
        # Compared with the least so far: room that others make after filling it up is room, too.
        grown = any(free[place] > before + MORE for place, before in self._before.items())
        self._before = {place: min(before, free[place]) for place, before in self._before.items()}
        return grown

    def _free(self) -> dict[Path, int]:
        return {place: _free(place) for place in self._places}


def _free(place: Path) -> int:
    """Return the bytes that this user can still write at a place, or at its nearest parent; -1 if out of reach."""
    for folder in (place, *place.parents):
        try:
            filesystem = os.statvfs(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return -1
        # f_bavail leaves out the blocks reserved for root, which f_bfree counts.
        return filesystem.f_bavail * filesystem.f_frsize
    return -1


class Room:
    """Pauses the threads of a run while a disk is full, and reports the beginning and the end."""

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
    """Stops instead of waiting: work that found a full disk is released, for other runners or for later."""

    def __init__(self, stop: Stop) -> None:
        self.stop = stop

    def wait(self, why: str, tries: int = 0, blind_s: float = BLIND_S) -> None:
        """Raises Stopped."""
        self.stop.request(why, full=True)
        self.stop.check()
