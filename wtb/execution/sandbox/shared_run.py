"""One attempt in a shared node process: its run, its own output, and whether neighbours may have affected it."""

from __future__ import annotations

import inspect
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextvars import ContextVar
from types import FrameType
from typing import Any

from wtb.authoring import boundary
from wtb.authoring.code.calling import AsyncCall, LoopThread
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.execution.sandbox.framing import COROUTINE, FILES, NODE, Channel

current_run: ContextVar[SharedRun | None] = ContextVar("shared_run", default=None)
_WTB_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep


class SharedRun:
    """One attempt in this process: its output, its reports, and its calls on the event loop.

    Attributes:
        node: The node that it runs; empty for a step that is begun or joined.
        variant: The variant of the node; empty likewise.
        began: The time of its beginning on the monotonic clock.
        is_cancelled: Whether the runner has cancelled it.
        redirections: Stream -> the target of its redirection.
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

    def report(self, what: str, details: Any) -> None:
        self.has_cost = self.has_cost or what == "spent" or (what == "call" and details["model"] is not None)
        self._channel.send("report", [self.number, what, details])

    def warn(self, message: str, place: str, **figures: float) -> None:
        """Report a warning, as an event and in its output."""
        details = {"level": "warning", "message": storable(message), "place": storable(place), **figures}
        self.report("event", ["node.log", time.time(), details])
        self.write("stderr", f"warning: {message}\n")

    def write(self, stream: str, text: str) -> None:
        """Add output, which is sent when a line ends."""
        with self._lock:
            lines = self._lines[stream]
            lines.write(text)
            if "\n" in text or lines.tell() > 1 << 16:
                self._send_lines(stream)

    def flush(self) -> None:
        """Send all output, including lines that have not ended."""
        with self._lock:
            for stream in self._lines:
                self._send_lines(stream)

    def _send_lines(self, stream: str) -> None:
        text = self._lines[stream].getvalue()
        if text:
            self._lines[stream] = io.StringIO()
            self._channel.send("output", [self.number, stream, text.encode("utf-8", "backslashreplace").decode()])

    def cancel(self) -> None:
        """Cancel its call on the event loop, or the next one if there is none. Sync code continues."""
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
        # `cancel` may have come before there was a call.
        if self.is_cancelled:
            call.cancel()
        return call

    def enter_phase(self, phase: str) -> None:
        """Report another phase of an attempt with a deadline to the clock of the runner."""
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
    while frame is not None and frame.f_code.co_filename.startswith((_WTB_FOLDER, _LIBRARY, "<frozen")):
        frame = frame.f_back
    nearest = frame or innermost
    return "an unknown place" if nearest is None else f"{nearest.f_code.co_filename}:{nearest.f_lineno}"


class RoutedStream(io.TextIOBase):
    """stdout or stderr: output of a node run goes to that node run, all other output to the process's own stream."""

    def __init__(self, name: str, stream: Any) -> None:
        self._name = name
        self._stream = self.own = stream

    def write(self, text: str) -> int:
        run = current_run.get()
        if run is None or not isinstance(text, str):
            return int(self._stream.write(text))
        if self._name in run.redirections:
            target = run.redirections[self._name]
            return len(text) if target is None else int(target.write(text) or len(text))
        run.write(self._name, text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._stream.fileno())

    @property
    def encoding(self) -> str:  # type: ignore[override]  # which is writable in typeshed
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> _RoutedBytes:
        return _RoutedBytes(self)


class _RoutedBytes(io.RawIOBase):
    """`sys.stdout.buffer`."""

    def __init__(self, stream: RoutedStream) -> None:
        self._text = stream

    def write(self, data: Any) -> int:
        self._text.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)

    def writable(self) -> bool:
        return True


def route_output() -> None:
    """Capture output by node run. Must be called before modules of users keep references to the streams."""
    sys.stdout = RoutedStream("stdout", sys.stdout)
    sys.stderr = RoutedStream("stderr", sys.stderr)


def leave_output() -> None:
    """Restore the streams of a process that is not shared. Replacements by user code stay."""
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), RoutedStream):
            setattr(sys, name, stream.own)


@frozen(slots=True)
class Verdict:
    """The verdict of a process on the result of one of its attempts.

    Attributes:
        lost: The reason why the result does not count, if it does not: the attempt is repeated alone.
        culprit: The number of the run to blame for that, which may be the attempt itself; None if it is unknown.
        is_apart: Whether runs of its node and variant share no process from now on, since they change globals.
    """

    lost: str | None = None
    culprit: int | None = None
    is_apart: bool = False

    def head(self) -> Mapping[str, str | int | bool]:
        """Return the fields that differ from their defaults, for a frame."""
        return {name: field for name in ("lost", "culprit", "is_apart") if (field := getattr(self, name))}

    @classmethod
    def read(cls, head: Any) -> Verdict:
        """Read what a node process sent. Raises Malformed."""
        return boundary.shaped(
            lambda: cls(
                boundary.optional(lambda text: boundary.text(text, 1_000), head.get("lost")),
                boundary.optional(boundary.count, head.get("culprit")),
                head.get("is_apart") is True,
            )
        )


CLEAN = Verdict()
