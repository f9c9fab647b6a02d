"""Keeps the parts of a stack running: starts again what died, and stops all of it in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from wtb.config.stack_file import Part, Restart
from wtb.core.errors import WTBError
from wtb.hosting.stack.requests import Requests

BACKOFF_S = (1.0, 30.0)  # before a part is started again: at first, and at most
STEADY_S = 5.0  # what ran so long before it died was not at fault itself: it is started again without delay
ATTEMPTS = 2  # of a part that has never been ready


class Watched(Protocol):
    """A part as the supervisor sees it: a program, or a server."""

    name: str

    @property
    def part(self) -> Part | None:
        """What runs, if it does."""

    def start(self) -> None:
        """Start it. Raises WTBError."""

    def wait(self) -> str:
        """Wait until it has ended; how, in words."""

    def is_ready(self) -> bool:
        """Whether it does its work."""

    def ask_to_stop(self) -> None:
        """Ask it to end, without waiting."""

    def stop(self, is_urgent: Callable[[], bool]) -> bool:
        """End it and wait; at once when it is urgent. Returns whether it ended by itself."""


class _Kept:
    """A part, and the thread that starts it again. lock: held while it is started."""

    def __init__(self, part: Watched) -> None:
        self.part = part
        self.lock = threading.Lock()
        self.thread = threading.Thread(name=f"keeps {part.name}")
        self.was_ready = False
        self.restart: Restart | None = None

    def is_ready(self) -> bool:
        ready = self.part.is_ready()
        self.was_ready |= ready
        return ready


class Supervisor:
    """Parts that run until they are stopped. say: gets what people should know. changed: called when one came or went.

    Used by the main thread.
    """

    def __init__(self, requests: Requests, say: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._requests = requests
        self._say = say
        self._changed = changed
        self._kept: list[_Kept] = []
        self._stopping = threading.Event()
        self._failed: str | None = None

    def start(self, part: Watched) -> None:
        """Start a part now, and again whenever it has ended. Raises WTBError where it does not start now."""
        part.start()
        kept = _Kept(part)
        kept.thread = threading.Thread(target=self._keep, args=(kept,), name=f"keeps {part.name}", daemon=True)
        self._kept.append(kept)
        kept.thread.start()
        self._changed()

    def parts(self) -> tuple[Part, ...]:
        """What runs just now."""
        found = [kept.part.part for kept in self._kept]
        return tuple(part for part in found if part is not None)

    def restarts(self) -> tuple[Restart, ...]:
        """Of parts that were started again, how often and why."""
        found = [kept.restart for kept in self._kept]
        return tuple(restart for restart in found if restart is not None)

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait until all parts do their work. Returns whether they do; not where somebody asked to stop.

        Raises WTBError where a part fails at once again and again, or all is not ready after `timeout` seconds.
        """
        ends = time.monotonic() + timeout
        while not self._requests.wait(0.1):
            if self._failed is not None:
                raise WTBError(self._failed)
            waiting = [kept.part.name for kept in self._kept if not kept.is_ready()]
            if not waiting:
                return True
            if time.monotonic() > ends:
                raise WTBError(f"not ready after {timeout:g} s: {', '.join(waiting)}; see what they said")
        return False

    def stop(self, groups: Sequence[Sequence[str]]) -> None:
        """Stop the parts that each group names together, group after group; at once as soon as that is urgent."""
        self._stopping.set()
        for group in groups:
            mine = [kept for kept in self._kept if kept.part.name in group]
            for kept in mine:
                with kept.lock:
                    kept.part.ask_to_stop()
            for kept in mine:
                self._stop(kept.part)
                kept.thread.join(10.0)
        self._kept.clear()

    def _stop(self, part: Watched) -> None:
        try:
            with self._requests.interrupting():
                if not part.stop(self._requests.is_urgent):
                    self._say(f"{part.name} was killed: it had not ended yet")
        except KeyboardInterrupt:
            part.stop(lambda: True)

    def _keep(self, kept: _Kept) -> None:
        shortest, longest = BACKOFF_S
        delay, tries = shortest, 1
        while True:
            began = time.monotonic()
            how = kept.part.wait()
            if self._stopping.is_set():
                return
            self._changed()
            delay = shortest if time.monotonic() - began > STEADY_S else delay
            if not kept.was_ready and tries >= ATTEMPTS:
                self._failed = f"{kept.part.name} {how}, {tries} times, before it was ready; see what it said"
                return
            tries += 1
            self._say(f"{kept.part.name} {how}; it is started again in {delay:g} s")
            while not self._start_again(kept, delay, how):
                if self._stopping.is_set():
                    return
                delay = min(2 * delay, longest)
            delay = min(2 * delay, longest)

    def _start_again(self, kept: _Kept, delay: float, reason: str) -> bool:
        if self._stopping.wait(delay):
            return False
        with kept.lock:
            if self._stopping.is_set():
                return False
            try:
                kept.part.start()
            except WTBError as error:
                self._say(f"{kept.part.name} could not be started again: {error}")
                return False
        before = kept.restart.count if kept.restart is not None else 0
        kept.restart = Restart(kept.part.name, before + 1, time.time(), reason)
        self._changed()
        self._say(f"{kept.part.name} was started again")
        return True
