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
    typed JSON by key. until: the deadline of the attempt, of `time.monotonic`.
    """

    def __init__(
        self,
        workspace: AttemptWorkspace,
        record: Record,
        allowed: int | None,
        saved: Mapping[str, bytes],
        until: float | None = None,
    ) -> None:
        self.allowed = allowed
        self.until = until
        self.saved = saved
        self._workspace = workspace
        self._record = record
        self._taken_at = time.monotonic()
        self._lock = threading.Lock()

    def is_due(self, every: float) -> bool:
        """Return whether `every` seconds have passed since the last checkpoint, or since the attempt began."""
        return time.monotonic() - self._taken_at >= every

    def take(self, name: str | None, trigger: str, saved: Mapping[str, bytes] | None = None) -> None:
        """Take a checkpoint. Without `saved`, the values saved last are kept. Raises StateError for unusable files."""
        with self._lock:
            taken = self._workspace.take(allowed=self.allowed, until=self.until)
            if self.allowed is not None:
                self.allowed = max(0, self.allowed - sum(size for _, size in taken.new))
            if saved is not None:
                self.saved = saved
            checkpoint = {
                "name": name,
                "trigger": trigger,
                "saved": {key: data.decode() for key, data in self.saved.items()},
                "workspace": taken.digest,
                "files": taken.new,
                "at": time.time(),
            }
            self._taken_at = time.monotonic()
        self._record.report("checkpoint", checkpoint)
