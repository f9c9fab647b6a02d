"""Output and files of attempts in node processes."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wtb.authoring import boundary
from wtb.authoring.boundary import Malformed
from wtb.authoring.context.attempt_record import Record
from wtb.core.errors import StateError, StoreError
from wtb.core.failures import Failure, is_disk_fault
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import storable
from wtb.execution.engine.protocol import Result, Task
from wtb.execution.sandbox.launch import reaper
from wtb.store.files.shared_store import Handover
from wtb.store.files.store import FileStore

CAP = 32 * 1024  # bytes kept of the beginning and of the end of an output
_OUR_FRAMES = re.compile(rf'^  File "{re.escape(str(Path(reaper.__file__).parents[3]))}/[^"]*", line \d+ in .*\n', re.M)


@dataclass
class Output:
    """A stream, of which the beginning and the end are kept.

    Attributes:
        start: The first bytes.
        end: The last bytes.
        left_out: The number of bytes dropped between them.
        mark: Bytes that the process prints between the outputs of two attempts; empty for none.
        parts: Outputs that a mark has ended, until they are taken.
    """

    start: bytearray = field(default_factory=bytearray)
    end: bytearray = field(default_factory=bytearray)
    left_out: int = 0
    mark: bytes = b""
    parts: deque[str | None] = field(default_factory=deque)
    _possible_mark: bytes = b""  # which may be the beginning of a mark

    def add(self, chunk: bytes) -> None:
        if self.mark:
            *ended, chunk = (self._possible_mark + chunk).split(self.mark)
            for part in ended:
                self._add(part)
                self.parts.append(self._take())
            # A mark can arrive in two pieces, so a possible beginning is held back until more arrives.
            overlap = _overlap(chunk, self.mark)
            chunk, self._possible_mark = chunk[: len(chunk) - overlap], chunk[len(chunk) - overlap :]
        self._add(chunk)

    def _add(self, chunk: bytes) -> None:
        room = CAP - len(self.start)
        self.start += chunk[:room]
        self.end += chunk[room:]
        # Cut only when twice as much is there, so that long outputs are not copied with every piece.
        if len(self.end) > 2 * CAP:
            self.left_out += len(self.end) - CAP
            del self.end[:-CAP]

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        return len(self.start) + self.left_out + len(self.end)

    def take(self) -> str | None:
        """Return and forget the oldest part that a mark has ended, else everything, as text; None if there is none."""
        if self.parts:
            return self.parts.popleft()
        rest, self._possible_mark = self._possible_mark, b""
        self._add(rest)
        return self._take()

    def _take(self) -> str | None:
        text = self.text()
        self.start, self.end, self.left_out = bytearray(), bytearray(), 0
        return text

    def text(self) -> str | None:
        """Return what is kept as text; None if there is nothing. Any thread may ask while it grows."""
        if not self.start:
            return None
        left_out = self.left_out + max(0, len(self.end) - CAP)
        text = bytes(self.start).decode("utf-8", "replace")
        if left_out:
            text += f"\n... {left_out:,} bytes left out ...\n"
        text += bytes(self.end[-CAP:]).decode("utf-8", "replace")
        # PostgreSQL cannot store NUL; of a crash's stack, the user's own frames matter.
        return _OUR_FRAMES.sub("", text.replace("\0", "\ufffd"))


def _overlap(chunk: bytes, mark: bytes) -> int:
    """Return the number of bytes at the end of `chunk` that are a beginning of the mark."""
    return next((size for size in range(min(len(mark) - 1, len(chunk)), 0, -1) if mark.startswith(chunk[-size:])), 0)


PROVIDED_S = 60.0  # until it is made sure again that a snapshot is in the cache, and noted that it is in use
MOST_PROVIDED = 1000


class ProvidedFiles:
    """Makes snapshots readable for node processes, and remembers them for a while. Used by all threads."""

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
            # A full local disk is waited for. Anything else the attempt meets itself, and reports as its failure.
            if is_disk_fault(error) and not isinstance(error, StoreError):
                raise
            return
        if len(self._provided) >= MOST_PROVIDED:
            self._provided.clear()
        self._provided[snapshot] = now


@frozen
class AttemptFiles:
    """The files of an attempt's checkpoints and of its end, taken over before the checkpoint or result counts."""

    task: Task
    record: Record
    handover: Handover

    def report(self, what: str, details: Any) -> None:
        """Record what the attempt reports; for a checkpoint, take over its files first. Raises Malformed.

        A checkpoint without room for its files is left out with a warning, and the attempt continues.
        """
        if what == "checkpoint":
            checkpoint = boundary.report(what, details)
            try:
                self._take(checkpoint["workspace"], checkpoint["files"])
            except OSError as error:
                message = storable(f"a checkpoint inside was not kept: {error}")
                what, details = "event", ["node.log", checkpoint["at"], {"message": message, "level": "warning"}]
        self.record.report(what, details)

    def received(self, outcome: Result) -> Result:
        """Take over the files of a result. Without room for them, the attempt has failed. Raises Malformed."""
        try:
            self._take(outcome.workspace, outcome.files)
        except OSError as error:
            failure = Failure.of(error, final=True, node=self.task.node)
            nothing = Result(outcome.started_at, outcome.duration_s, outcome.record, workspace=self.task.workspace)
            return replace(nothing, failure=failure, asked=outcome.asked)
        return outcome

    def _take(self, snapshot: str | None, files: tuple[tuple[str, int], ...]) -> None:
        try:
            self.handover.take(snapshot, files)
        except StateError as error:
            raise Malformed(str(error)) from None
