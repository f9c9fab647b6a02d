"""Modules of users in this process: they are imported again when they change on disk."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# A module: its name and file, when it began to be imported, and the time, size and number that the file had then.
ImportedFile = tuple[str, str, float, Sequence[int]]
FILE_CLOCK_S = 0.01  # by which timestamps of files may lag behind the clock
OURS = {"wtb", "wtb_workers", "wtb_scheduler", "__main__"}  # never imported again, also where WTB is developed


class Imports:
    """Tracks the modules imported from the working directory; installed packages are not tracked.

    A fingerprint reads the source on disk, so imported code must not be older than that.

    rounds: how often changed modules were found.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._began = time.time()  # to import, the last time
        self._known: dict[str, tuple[float, tuple[int, ...]]] = {}  # module -> (imported after, file as it was then)
        self._lock = threading.Lock()

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """A context in which imports are fresh: if a tracked module changed on disk, all are dropped first."""
        with self._lock, self._fresh():
            yield

    @contextmanager
    def _fresh(self) -> Iterator[None]:
        present = self._present()
        if any(self._changed(name, file) for name, file in present.items()):
            self.rounds += 1
            self._known.clear()
            for name in present:
                del sys.modules[name]
            importlib.invalidate_caches()
        self._began = time.time()
        try:
            yield
        finally:
            for name, file in self._present().items():
                self._known.setdefault(name, (self._began, _state(file)))

    def files(self) -> list[ImportedFile]:
        """Return the tracked modules, as they were when they were imported."""
        with self._lock:
            present = self._present()
            return [(name, present[name], *state) for name, state in self._known.items() if name in present]

    def are_stale(self) -> bool:
        """Return whether a tracked module changed on disk."""
        with self._lock:
            return any(self._changed(name, file) for name, file in self._present().items())

    def _changed(self, name: str, file: str) -> bool:
        present = _state(file)
        # A module that a node imported meanwhile is not known yet.
        after, before = self._known.setdefault(name, (self._began, present))
        return _is_changed(present, after, before)

    def _present(self) -> dict[str, str]:
        # Compared as strings: there may be thousands of modules, and Path objects take about twenty times as long.
        here, *installed = (os.path.join(folder, "") for folder in (os.getcwd(), sys.prefix, sys.base_prefix))
        files = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not file or not file.startswith(here) or file.startswith(tuple(installed)):
                continue
            if name.partition(".")[0] not in OURS:
                files[name] = file
        return files


def _state(file: str) -> tuple[int, ...]:
    try:
        status = os.stat(file)
    except OSError:  # it was removed
        return (0,)
    return status.st_mtime_ns, status.st_size, status.st_ino


def have_changed(files: Sequence[ImportedFile]) -> bool:
    """Return whether a module that a node process imported has changed on disk since."""
    return any(_is_changed(_state(file), after, tuple(before)) for _, file, after, before in files)


def _is_changed(present: tuple[int, ...], after: float, before: tuple[int, ...]) -> bool:
    # If a file was written while it was imported, the import may have read the old content.
    return present != before or present[0] >= (after - FILE_CLOCK_S) * 1e9


imports = Imports()  # of this process
