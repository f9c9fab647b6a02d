"""The workspace of an attempt as its working directory, of a whole process or of one thread."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from wtb.store.files.workspaces import Snapshot, Workspace

_CLONE_FS = 0x200  # linux/sched.h


def detach_directory() -> bool:
    """Give this thread a working directory of its own, for good, as Linux can. Returns whether it has one."""
    if sys.platform != "linux":
        return False
    try:
        return int(ctypes.CDLL(None).unshare(_CLONE_FS)) == 0
    except (OSError, AttributeError):
        return False


class Entered:
    """The workspace of an attempt, as the working directory while it lasts. `keep`: takes it where it was left empty.

    Making and removing a directory takes longer than a quick node; one in which nothing was left is as good as new.
    """

    is_open = True

    def __init__(self, workspace: Workspace, home: str, keep: Callable[[Entered], None]) -> None:
        self._workspace = workspace
        self._home = home
        self._keep = keep
        self._owner = os.getpid()
        self.path = workspace.path
        self._name = str(self.path)
        self._identity = self._present()

    def enter(self) -> Entered:
        os.chdir(self._name)
        return self

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        return self._workspace.take(allowed=allowed, until=until)

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        if os.getpid() != self._owner:  # a copy that user code forked, and that came back: the files are not its own
            os._exit(70)
        os.chdir(self._home)
        if self._workspace.snapshot is None and self._is_untouched():
            self._keep(self)
            return Snapshot(None)
        return self._workspace.close(keep=keep, allowed=allowed, until=until)

    def _present(self) -> tuple[int, int, int]:
        found = os.lstat(self._name)
        return found.st_dev, found.st_ino, found.st_mode

    def _is_untouched(self) -> bool:
        try:
            return self._present() == self._identity and not os.listdir(self._name)
        except FileNotFoundError:
            return False
