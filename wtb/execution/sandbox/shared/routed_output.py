"""Output of node runs that share a process: each keeps its own."""

from __future__ import annotations

import io
import sys
from typing import Any

from wtb.execution.sandbox.shared.shared_run import current_run


class RoutedStream(io.TextIOBase):
    """stdout or stderr: what a node run prints goes to that node run, all else to the process's own stream."""

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
    """Capture by node run what is printed, before modules of users keep the streams for themselves."""
    sys.stdout = RoutedStream("stdout", sys.stdout)
    sys.stderr = RoutedStream("stderr", sys.stderr)


def leave_output() -> None:
    """Give a process that is not shared its own streams back. What user code has put there stays."""
    for name in ("stdout", "stderr"):
        if isinstance(stream := getattr(sys, name), RoutedStream):
            setattr(sys, name, stream.own)
