"""Checkpoints inside a node, taken while it runs: of the values that it saved and of its files."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wtb.authoring.context.attempt_record import Record
    from wtb.authoring.context.surroundings import AttemptWorkspace


class CheckpointTaker:
    """Takes the checkpoints of one attempt.

    allowed: bytes of new files that the attempt may still leave; None is no limit. saved: what was saved last, as
    typed JSON by key. until: the deadline of the attempt, of `time.monotonic`. before: the snapshot of files that the
    attempt started with.
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
            if self.allowed is not None:
                self.allowed = max(0, self.allowed - sum(size for _, size in snapshot.new))
            if saved is not None:
                self.saved = saved
            checkpoint = {
                "name": name,
                "trigger": trigger,
                "saved": {key: data.decode() for key, data in self.saved.items()},
                "workspace": snapshot.digest,
                "files": snapshot.new,
                "at": time.time(),
            }
            self._taken_at = time.monotonic()
            self._last = snapshot.digest, self.saved
        self._record.report("checkpoint", checkpoint)
