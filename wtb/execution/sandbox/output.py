"""What a node process prints: the beginning and the end of each stream, for each attempt."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from wtb.execution.sandbox.launch import reaper

CAP = 32 * 1024  # bytes kept of the beginning and of the end of an output
_OUR_FRAMES = re.compile(rf'^  File "{re.escape(str(Path(reaper.__file__).parents[3]))}/[^"]*", line \d+ in .*\n', re.M)


@dataclass
class Output:
    """A stream, of which the beginning and the end are kept.

    mark: what the process prints where the output of one attempt ends and that of the next begins; empty for none.
    parts: the outputs that a mark has ended, until they are taken.
    """

    start: bytearray = field(default_factory=bytearray)
    end: bytearray = field(default_factory=bytearray)
    left_out: int = 0
    mark: bytes = b""
    parts: deque[str | None] = field(default_factory=deque)
    _held: bytes = b""  # which may be the beginning of a mark

    def add(self, data: bytes) -> None:
        if self.mark:
            *ended, data = (self._held + data).split(self.mark)
            for part in ended:
                self._add(part)
                self.parts.append(self._take())
            held = _overlap(data, self.mark)
            data, self._held = data[: len(data) - held], data[len(data) - held :]
        self._add(data)

    def _add(self, data: bytes) -> None:
        room = CAP - len(self.start)
        self.start += data[:room]
        self.end += data[room:]
        if len(self.end) > 2 * CAP:
            self.left_out += len(self.end) - CAP
            del self.end[:-CAP]

    @property
    def size(self) -> int:
        """How many bytes there were so far."""
        return len(self.start) + self.left_out + len(self.end)

    def take(self) -> str | None:
        """Return, and forget, the oldest part that a mark has ended, else all, as text; None if there is nothing."""
        if self.parts:
            return self.parts.popleft()
        held, self._held = self._held, b""
        self._add(held)
        return self._take()

    def _take(self) -> str | None:
        text = self.text()
        self.start, self.end, self.left_out = bytearray(), bytearray(), 0
        return text

    def text(self) -> str | None:
        """Return what is kept as text; None if there is nothing. Any thread may ask while it grows."""
        if not self.start:
            return None
        left_out = self.left_out + max(0, len(self.end) - CAP)
        text = bytes(self.start).decode("utf-8", "replace")
        if left_out:
            text += f"\n... {left_out:,} bytes left out ...\n"
        text += bytes(self.end[-CAP:]).decode("utf-8", "replace")
        # PostgreSQL cannot store NUL; of a crash's stack, the user's own frames matter.
        return _OUR_FRAMES.sub("", text.replace("\0", "\ufffd"))


def _overlap(data: bytes, mark: bytes) -> int:
    """How many bytes at the end of `data` are a beginning of the mark."""
    return next((size for size in range(min(len(mark) - 1, len(data)), 0, -1) if mark.startswith(data[-size:])), 0)
