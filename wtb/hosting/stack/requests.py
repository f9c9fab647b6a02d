"""Requests to stop: Ctrl-C, SIGTERM and the end of the terminal."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator


class Requests:
    """The requests, counted: the first asks to stop, the second to be quick.

    A context manager, for the main thread.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __enter__(self) -> Requests:
        self.count = 0
        self._may_interrupt = False
        self._woken, self._wakes = os.pipe()
        for end in (self._woken, self._wakes):
            os.set_blocking(end, False)
        heeded = [number for number in self._NUMBERS if signal.getsignal(number) != signal.SIG_IGN]  # as nohup says
        self._handlers = {number: signal.signal(number, self._note) for number in heeded}
        self._wakeup = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        return self

    def __exit__(self, *error: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._wakes)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the first request, at most so many seconds. Returns whether there was one."""
        if not self.count and select.select([self._woken], [], [], timeout)[0]:
            os.read(self._woken, 4096)
        return bool(self.count)

    def is_urgent(self) -> bool:
        return self.count > 1

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """A second request interrupts what is done meanwhile."""
        self._may_interrupt = True
        try:
            yield
        finally:
            self._may_interrupt = False

    def _note(self, number: int, frame: object) -> None:
        self.count += 1
        if self._may_interrupt and self.is_urgent():
            raise KeyboardInterrupt
