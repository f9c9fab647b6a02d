"""Working directories of the threads that sync nodes run on, in a process that they share."""

from __future__ import annotations

import os
import threading

from wtb.execution.engine.working_directory import Entered, detach_directory
from wtb.store.files.workspaces import Workspaces


class Directories:
    """Working directories of the threads that sync nodes run on. home: where all of them are between two attempts."""

    def __init__(self) -> None:
        self._home = os.getcwd()
        self._thread = threading.local()

    @property
    def is_own(self) -> bool:
        """Whether this thread has a working directory of its own."""
        return getattr(self._thread, "is_own", False)

    def detach(self) -> None:
        """Give this thread a working directory of its own, where the system can."""
        self._thread.is_own, self._thread.empty = detach_directory(), None

    def enter(self, workspaces: Workspaces, snapshot: str | None) -> Entered:
        """Work in a workspace; one that was left empty is used again."""
        entered: Entered | None = self._thread.empty if snapshot is None else None
        if entered is None:
            return Entered(workspaces.open(snapshot), self._home, self._keep).enter()
        self._thread.empty = None
        return entered.enter()

    def _keep(self, entered: Entered) -> None:
        self._thread.empty = entered

    def is_left(self) -> bool:
        """Return whether user code has changed the working directory that others share."""
        return os.getcwd() != self._home
