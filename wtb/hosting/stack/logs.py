"""Where the lines of the stack's parts go: to one terminal, each with who says it, or each to a file of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

MOST = 10 * 2**20  # bytes of a log before it becomes NAME.log.1
_COLORS = {"worker": 36, "scheduler": 35, "flower": 33, "valkey": 31, "postgres": 34, "wtb": 32}
_WIDTH = max(map(len, _COLORS))

Line = Callable[[str, str], None]


def to_terminal(stream: TextIO = sys.stderr) -> Line:
    """Write lines one below the other, with the part that says them; in colour where the terminal shows any."""
    colored = stream.isatty() and not os.environ.get("NO_COLOR")
    lock = threading.Lock()

    def write(name: str, line: str) -> None:
        who = f"{name:<{_WIDTH}} |"
        if colored:
            who = f"\x1b[{_COLORS.get(name, 37)}m{who}\x1b[0m"
        # A terminal that was closed hears nothing more, and the stack still ends in order.
        with lock, contextlib.suppress(OSError, ValueError):
            stream.write(f"{who} {line}\n")
            stream.flush()

    return write


def to_files(folder: Path) -> Line:
    """Write lines to NAME.log below a folder, which is made; the latest 10 to 20 MB are kept."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = threading.Lock()

    def write(name: str, line: str) -> None:
        path = folder / f"{name}.log"
        with lock, contextlib.suppress(OSError):  # a full disk stops no part
            path.touch(mode=0o600)
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                full = file.tell() > MOST
            if full:
                path.replace(path.with_suffix(".log.1"))

    return write


class Followed:
    """A growing log file, of which `lines` gives what is new since the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def lines(self) -> list[str]:
        """Whole lines that were added."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._place)
            data = file.read()
            self._place += len(data)
            *whole, self._rest = (self._rest + data).split(b"\n")
            return [line.decode("utf-8", "replace") for line in whole]
        return []
