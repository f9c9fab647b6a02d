"""Services that an attempt gets from the process it runs in: a private workspace, checkpoints, deadlines, resources."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from wtb.authoring.context.attempt_record import OnEvent, Record
from wtb.store.files.workspaces import Snapshot


class AttemptWorkspace(Protocol):
    """The private directory of one attempt."""

    @property
    def path(self) -> Path: ...

    @property
    def is_open(self) -> bool:
        """Return whether the directory exists."""

    def take(self, *, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot of what is there now, and leave the directory as it is."""

    def close(self, *, keep: bool, allowed: int | None = None, until: float | None = None) -> Snapshot:
        """Take a snapshot if `keep` is true and something changed; remove the directory either way."""


class Surroundings(Protocol):
    """The services that an engine needs from the process it runs in.

    `own_process` is true if the process runs nothing but user code.
    """

    @property
    def own_process(self) -> bool: ...

    @property
    def judgements(self) -> Path | None:
        """Return the folder where replies of judges are kept; None if they are not kept."""

    @property
    def own_folders(self) -> Sequence[str]:
        """Return the folders in which WTB itself writes for attempts, their workspaces among them."""

    def record(self, on_event: OnEvent | None = None) -> Record:
        """Return a record for an attempt; `on_event` is called with each thing that it reports, as it happens."""

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        """Call a sync or async function. Raises NodeTimeout after `timeout` seconds."""

    def resources(self) -> Any:
        """Return what the workflow's `resources` factory made for this process."""

    def workspace(self, snapshot: str | None, *, enter: bool = False) -> AttemptWorkspace:
        """Open a private directory with the files of a snapshot. With `enter`, the process works in it if it can."""


class CheckpointTaker:
    """Takes the checkpoints of one attempt.

    Args:
        workspace: The workspace of the attempt.
        record: The record of the attempt.
        allowed: Bytes of new files that the attempt may still leave; None is no limit.
        saved: The values saved last, as typed JSON by key.
        until: The deadline of the attempt, of `time.monotonic`.
        before: The snapshot of files that the attempt started with.
    """

    def __init__(
        self,
        workspace: AttemptWorkspace,
        record: Record,
        allowed: int | None,
        saved: Mapping[str, bytes],
        until: float | None = None,
        before: str | None = None,
    ) -> None:
        self.allowed = allowed
        self.until = until
        self.saved = saved
        self._workspace = workspace
        self._record = record
        self._taken_at = time.monotonic()
        self._last = before, saved  # files and values of the last checkpoint
        self._lock = threading.Lock()

    def is_due(self, every: float) -> bool:
        """Return whether `every` seconds have passed since the last checkpoint, or since the attempt began."""
        return self.due_in(every) <= 0

    def due_in(self, every: float) -> float:
        """Return in how many seconds `every` seconds have passed since the last one; 0 or less if they have."""
        return every - (time.monotonic() - self._taken_at)

    def take_changed(self) -> None:
        """Take a checkpoint by time, unless files and saved values are as they were at the last one.

        Raises:
            StateError: For unusable files, such as one that is being written to.
            NodeTimeout: If the time of the attempt is up.
            OSError: If the disk is full.
        """
        self._take(None, "time", None, only_changed=True)

    def take(self, name: str | None, trigger: str, saved: Mapping[str, bytes] | None = None) -> None:
        """Take a checkpoint. Without `saved`, the values saved last are kept. Raises StateError for unusable files."""
        self._take(name, trigger, saved, only_changed=False)

    def _take(self, name: str | None, trigger: str, saved: Mapping[str, bytes] | None, *, only_changed: bool) -> None:
        with self._lock:
            snapshot = self._workspace.take(allowed=self.allowed, until=self.until)
            if only_changed and self._last == (snapshot.digest, self.saved):
                self._taken_at = time.monotonic()
                return
            # All checkpoints of an attempt share one limit.
            if self.allowed is not None:
                self.allowed = max(0, self.allowed - sum(size for _, size in snapshot.new))
            if saved is not None:
                self.saved = saved
            checkpoint = {
                "name": name,
                "trigger": trigger,
                "saved": {key: encoded.decode() for key, encoded in self.saved.items()},
                "workspace": snapshot.digest,
                "files": snapshot.new,
                "at": time.time(),
            }
            self._taken_at = time.monotonic()
            self._last = snapshot.digest, self.saved
        self._record.report("checkpoint", checkpoint)
