"""Keeps the programs of a stack running: starts again what ended, and stops all of it in order."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wtb.config.stack_file import Part, Restart
from wtb.core.errors import WTBError
from wtb.hosting.servers.program import Program

BACKOFF_S = (1.0, 30.0)  # before a program is started again: at first, and at most
STEADY_S = 5.0  # what ran so long before it ended was not at fault itself: it is started again without delay
ATTEMPTS = 2  # of a program that has never been ready
LOOK_S = 0.1


class Requests:
    """Counts requests to stop: Ctrl-C, SIGTERM and the end of the terminal. The second one asks to be quick.

    A context manager, for the main thread.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> Requests:
        self.count = 0
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        handled = [number for number in self._NUMBERS if signal.getsignal(number) != signal.SIG_IGN]  # as nohup does
        self._handlers = {number: signal.signal(number, self._count) for number in handled}
        self._wakeup = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._wakes)

    def wait(self, timeout: float) -> bool:
        """Wait for the first request, for at most `timeout` seconds. Returns True if there was one."""
        if not self.count and select.select([self._woken], [], [], timeout)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        return bool(self.count)

    def is_urgent(self) -> bool:
        return self.count > 1

    def _count(self, number: int, frame: object) -> None:
        self.count += 1


@dataclass
class _Supervised:
    """A program, and when it was or will be started.

    Attributes:
        started_at: The last time, by the monotonic clock.
        delay: Seconds until the next start.
        reason: How it ended.
        due_at: When it is started again; None while it runs.
    """

    program: Program
    started_at: float
    delay: float
    attempts: int = 1
    was_ready: bool = False
    reason: str = ""
    due_at: float | None = None
    restart: Restart | None = None

    def is_ready(self) -> bool:
        ready = self.due_at is None and self.program.is_ready()
        self.was_ready |= ready
        return ready


class Supervisor:
    """Keeps programs running until they are stopped."""

    def __init__(self, requests: Requests, report: Callable[[str], None], changed: Callable[[], None]) -> None:
        """Supervise nothing yet.

        Args:
            requests: Requests to stop.
            report: Called with what people should know.
            changed: Called when a program was started or has ended.
        """
        self._requests = requests
        self._report = report
        self._changed = changed
        self._supervised: list[_Supervised] = []

    def start(self, program: Program) -> None:
        """Start a program now, and again whenever it has ended. Raises WTBError where it does not start now."""
        program.start()
        self._supervised.append(_Supervised(program, time.monotonic(), BACKOFF_S[0]))
        self._changed()

    def parts(self) -> tuple[Part, ...]:
        """What runs just now."""
        return tuple(one.program.part for one in self._supervised if one.program.part is not None)

    def restarts(self) -> tuple[Restart, ...]:
        """How often programs were started again, and why."""
        return tuple(one.restart for one in self._supervised if one.restart is not None)

    def wait_until_ready(self, timeout: float) -> bool:
        """Wait until all programs do their work.

        Args:
            timeout: Seconds.

        Returns:
            True if they do; False if somebody asked to stop.

        Raises:
            WTBError: A program ends again and again before it is ready, or not all are ready in time.
        """
        ends = time.monotonic() + timeout
        while not self._requests.wait(LOOK_S):
            self.look()
            waiting = [one.program.name for one in self._supervised if not one.is_ready()]
            if not waiting:
                return True
            if time.monotonic() > ends:
                raise WTBError(f"not ready after {timeout:g} s: {', '.join(waiting)}; see their output")
        return False

    def run(self) -> None:
        """Keep the programs running until somebody asks to stop."""
        while not self._requests.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Start again what has ended, once its time has come."""
        for one in self._supervised:
            if one.due_at is not None:
                if time.monotonic() >= one.due_at:
                    self._restart(one)
            elif (how := one.program.poll()) is not None:
                self._plan_restart(one, how)

    def stop(self, groups: Sequence[Sequence[str]]) -> None:
        """Stop the programs of each group together, group after group; at once as soon as that is urgent."""
        for names in groups:
            group = [one.program for one in self._supervised if one.program.name in names]
            for program in group:
                program.ask_to_stop()
            for program in group:
                if not program.end(self._requests.is_urgent):
                    self._report(f"{program.name} was killed: it had not ended yet")
        self._supervised.clear()

    def _plan_restart(self, supervised: _Supervised, how: str) -> None:
        """Plan when to start an ended program again. Raises WTBError if it has never become ready, too often."""
        self._changed()
        name, now = supervised.program.name, time.monotonic()
        if not supervised.was_ready and supervised.attempts >= ATTEMPTS:
            raise WTBError(f"{name} {how}, {supervised.attempts} times, before it was ready; see its output")
        if now - supervised.started_at > STEADY_S:
            supervised.delay = BACKOFF_S[0]
        supervised.attempts += 1
        supervised.reason = how
        supervised.due_at = now + supervised.delay
        self._report(f"{name} {how}; it is started again in {supervised.delay:g} s")

    def _restart(self, supervised: _Supervised) -> None:
        """Start a program again; if it cannot be started, plan another try."""
        name = supervised.program.name
        supervised.delay = min(2 * supervised.delay, BACKOFF_S[1])
        supervised.started_at = time.monotonic()
        try:
            supervised.program.start()
        except (WTBError, OSError) as error:
            self._report(f"{name} could not be started again: {error}")
            supervised.due_at = time.monotonic() + supervised.delay
            return
        supervised.due_at = None
        count = supervised.restart.count + 1 if supervised.restart is not None else 1
        supervised.restart = Restart(name, count, time.time(), supervised.reason)
        self._changed()
        self._report(f"{name} was started again")
