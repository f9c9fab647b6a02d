"""One attempt in a shared node process, on the side of the process."""

from __future__ import annotations

import inspect
import io
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import FrameType
from typing import Any

from wtb.authoring.code.event_loop import AsyncCall, LoopThread
from wtb.core.serialization.plain_json import storable
from wtb.execution.sandbox.deadlines import COROUTINE, FILES, NODE
from wtb.execution.sandbox.framing import Channel

current_run: ContextVar[SharedRun | None] = ContextVar("shared_run", default=None)
_HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class SharedRun:
    """One attempt in this process: what it prints, what it reports, and its calls on the event loop.

    Attributes:
        node, variant: The node that it runs, and how; empty for a step that is begun or joined.
        began: When it began, on the monotonic clock.
        is_cancelled: Whether the runner has cancelled it.
        redirections: Stream -> what it has redirected it to.
        has_cost: Whether it has made a model call, or has spent anything.
    """

    def __init__(self, channel: Channel, number: int, loop: LoopThread) -> None:
        self.number = number
        self.node = self.variant = ""
        self.began = time.monotonic()
        self.is_cancelled = False
        self.redirections: dict[str, Any] = {}
        self.has_cost = False
        self._channel = channel
        self._loop = loop
        self._calls: list[AsyncCall] = []
        self._lines = {"stdout": io.StringIO(), "stderr": io.StringIO()}
        self._lock = threading.Lock()

    def report(self, what: str, data: Any) -> None:
        self.has_cost = self.has_cost or what == "spent" or (what == "call" and data["model"] is not None)
        self._channel.send("report", [self.number, what, data])

    def warn(self, message: str, place: str, **figures: float) -> None:
        """Warn of what it does, as an event and in its output."""
        data = {"level": "warning", "message": storable(message), "place": storable(place), **figures}
        self.report("event", ["node.log", time.time(), data])
        self.write("stderr", f"warning: {message}\n")

    def write(self, stream: str, text: str) -> None:
        """Keep what is printed until its line ends."""
        with self._lock:
            lines = self._lines[stream]
            lines.write(text)
            if "\n" in text or lines.tell() > 1 << 16:
                self._send_lines(stream)

    def flush(self) -> None:
        """Send what was printed, lines that have not ended, too."""
        with self._lock:
            for stream in self._lines:
                self._send_lines(stream)

    def _send_lines(self, stream: str) -> None:
        text = self._lines[stream].getvalue()
        if text:
            self._lines[stream] = io.StringIO()
            self._channel.send("output", [self.number, stream, text.encode("utf-8", "backslashreplace").decode()])

    def cancel(self) -> None:
        """Cancel its call on the event loop, or the one that it is about to begin. Sync code continues."""
        self.is_cancelled = True
        for call in self._calls:
            call.cancel()

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Call a function, on the event loop if it is async. A coroutine is cancelled at its deadline."""
        if timeout is not None:
            self.enter_phase(COROUTINE if inspect.iscoroutinefunction(fn) else NODE)
        try:
            returned = fn(*args, **kwargs)
            return self.begin(returned, timeout).future.result() if inspect.iscoroutine(returned) else returned
        finally:
            if timeout is not None:
                self.enter_phase(FILES)

    def begin(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> AsyncCall:
        """Begin a coroutine on the event loop. It is cancelled at its deadline."""
        call = self._loop.begin(coroutine, timeout, self)
        self._calls.append(call)
        if self.is_cancelled:
            call.cancel()
        return call

    def enter_phase(self, phase: str) -> None:
        """Have the clock of the runner count another phase of an attempt with a deadline."""
        self._channel.send("phase", [self.number, phase])

    def has_intruded(self) -> bool:
        """Return whether it has cancelled a task of another run."""
        return any(call.has_intruded for call in self._calls)

    def intruder(self) -> SharedRun | None:
        """Return the run that has cancelled a task of this one, if there is one."""
        for call in self._calls:
            if call.intruder is not None:
                run: SharedRun = call.intruder.owner
                return run
        return None


def place_of(frame: FrameType | None) -> str:
    """Return file and line of the innermost frame that is the user's own, else of the innermost one."""
    innermost = frame
    while frame is not None and frame.f_code.co_filename.startswith((_HERE, _LIBRARY, "<frozen")):
        frame = frame.f_back
    shown = frame or innermost
    return "an unknown place" if shown is None else f"{shown.f_code.co_filename}:{shown.f_lineno}"
