"""A standby worker: it has imported everything, and works as soon as the worker with its name has ended."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from urllib.parse import quote

from wtb.core.errors import InputError
from wtb.hosting.servers.server import make_folder

with contextlib.suppress(ModuleNotFoundError):  # on Windows, where nothing stands by
    import fcntl

FOLDER = "workers"
WAITS = "stands by"  # in the line by which others see that it is ready


@contextlib.contextmanager
def turn(home: Path, name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Wait until no other process has the turn of a name, then have it until the end of the block.

    The turn is a lock of the operating system on a file. The system releases it with the process that holds it, however
    that ends, and wakes the one that waits. Node processes do not inherit it.

    Args:
        home: The folder below which the file is.
        name: The name of the worker.
        say: Called with a line for people if this process has to wait.

    Raises:
        InputError: The system has no such locks.
        StoreError: The file cannot be made.
        SystemExit: A signal stopped this process while it waited.
    """
    if "fcntl" not in globals():
        raise InputError("--standby works on Linux and macOS only: start the worker without it", argument="standby")
    make_folder(home / FOLDER)
    descriptor = os.open(home / FOLDER / f"{quote(name, safe='@')}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with _ended_by_signals():
                say(f"worker {name} {WAITS} until the one that works has ended")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Exit with 0 on a signal during the block, because a standby has nothing to finish."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
