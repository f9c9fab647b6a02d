"""Where the output of programs goes: to one terminal, each line with its program's name, or to a file for each."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

MAX_BYTES = 10 * 2**20  # of a log before it becomes NAME.log.1
_COLORS = {"worker": 36, "scheduler": 35, "flower": 33, "valkey": 31, "postgres": 34, "wtb": 32}
_WIDTH = max(map(len, _COLORS))

Line = Callable[[str, str], None]
"""Takes the name of a program and one line of its output."""


def to_terminal(stream: TextIO = sys.stderr) -> Line:
    """Return a function that prints lines after the program's name, in colour where the terminal shows any."""
    colored = stream.isatty() and not os.environ.get("NO_COLOR")
    lock = threading.Lock()

    def write(name: str, line: str) -> None:
        label = f"{name:<{_WIDTH}} |"
        if colored:
            label = f"\x1b[{_COLORS.get(name, 37)}m{label}\x1b[0m"
        # The terminal may be closed; the stack still has to stop in order.
        with lock, contextlib.suppress(OSError, ValueError):
            stream.write(f"{label} {line}\n")
            stream.flush()

    return write


def to_files(folder: Path) -> Line:
    """Return a function that appends lines to NAME.log in a folder; the latest 10 to 20 MB of each are kept."""
    lock = threading.Lock()

    def write(name: str, line: str) -> None:
        path = folder / f"{name}.log"
        with lock, contextlib.suppress(OSError):  # a full disk stops no program
            path.touch(mode=0o600)
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                full = file.tell() > MAX_BYTES
            if full:
                path.replace(path.with_suffix(".log.1"))

    return write
