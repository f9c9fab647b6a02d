"""Files of attempts in node processes: provided before an attempt begins, and taken over from what it leaves."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from wtb.authoring import boundary
from wtb.authoring.boundary import Malformed
from wtb.authoring.context.attempt_record import Record
from wtb.core.classes.frozen import frozen
from wtb.core.errors import StateError, StoreError
from wtb.core.failures import Failure, is_disk_fault
from wtb.core.serialization.plain_json import storable
from wtb.execution.engine.protocol import Result, Task
from wtb.store.files.handover import Handover
from wtb.store.files.store import FileStore

PROVIDED_S = 60.0  # until it is made sure again that a snapshot is in the cache, and noted that it is in use
MOST_PROVIDED = 1000


class ProvidedFiles:
    """Makes snapshots readable for node processes, and remembers for a while that it did. Used by all threads."""

    def __init__(self, store: FileStore) -> None:
        self._store = store
        self._provided: dict[str, float] = {}

    def provide(self, snapshot: str | None) -> None:
        """Make a snapshot readable, as a store does by `provide`. Raises OSError if the disk is full."""
        now = time.monotonic()
        if snapshot is None or self._provided.get(snapshot, now - PROVIDED_S) > now - PROVIDED_S:
            return
        try:
            self._store.provide(snapshot)
        except (StoreError, OSError) as error:
            if is_disk_fault(error) and not isinstance(error, StoreError):
                raise
            return  # the attempt meets the same, and reports it as its failure
        if len(self._provided) >= MOST_PROVIDED:
            self._provided.clear()
        self._provided[snapshot] = now


@frozen
class AttemptFiles:
    """What one attempt leaves: the files of its checkpoints and of its end, taken over before anybody hears of them."""

    task: Task
    record: Record
    handover: Handover

    def report(self, what: str, data: Any) -> None:
        """Record what the attempt reports; for a checkpoint, take over its files first. Raises Malformed.

        A checkpoint whose files find no room is left out, with a warning: the attempt goes on.
        """
        if what == "checkpoint":
            taken = boundary.report(what, data)
            try:
                self._take(taken["workspace"], taken["files"])
            except OSError as error:
                message = storable(f"a checkpoint inside was not kept: {error}")
                what, data = "event", ["node.log", taken["at"], {"message": message, "level": "warning"}]
        self.record.report(what, data)

    def received(self, result: Result) -> Result:
        """Take over the files of a result. Where they find no room, the attempt has failed. Raises Malformed."""
        try:
            self._take(result.workspace, result.files)
        except OSError as error:
            failure = Failure.of(error, final=True, node=self.task.node)
            nothing = Result(result.started_at, result.duration_s, result.record, workspace=self.task.workspace)
            return replace(nothing, failure=failure, asked=result.asked)
        return result

    def _take(self, snapshot: str | None, files: tuple[tuple[str, int], ...]) -> None:
        try:
            self.handover.take(snapshot, files)
        except StateError as error:
            raise Malformed(str(error)) from None
