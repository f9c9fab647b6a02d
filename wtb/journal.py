"""The buffer between runner and store: what was done is committed in groups, a bounded time after it happened."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from wtb.engine import Value
from wtb.errors import ConflictError, WTBError
from wtb.store.flush import Batch, Row

log = logging.getLogger(__name__)

FULL = 5_000  # records; a runner that is ahead of the database by more waits for it


class Lost(ConflictError):
    """This execution's lease is somebody else's now: stop working on it."""


class Journal:
    """Collects rows and writes them from a thread of its own.

    durability: seconds from the first buffered row to the commit; 0 commits after every `settle`.
    write: takes a batch, returns the executions that lost their lease.
    """

    def __init__(self, write: Callable[[Batch], set[str]], durability: float) -> None:
        self._write = write
        self.durability = durability
        self._batch = Batch()
        self._lock = threading.Condition()
        self._since = 0.0
        self._hurry = False
        self._closing = False
        self._sequence = 0
        self._written = 0
        self._lost: set[str] = set()
        self._broken: Exception | None = None
        self._thread = threading.Thread(target=self._loop, name="wtb-journal", daemon=True)
        self._thread.start()

    def record(
        self,
        execution: str,
        token: int,
        *,
        born: Iterable[Row] = (),
        change: Row | None = None,
        values: Iterable[Value] = (),
        checkpoints: Iterable[Row] = (),
        node_run: Row | None = None,
        node_run_change: tuple[str, Row] | None = None,
        outcomes: Iterable[Row] = (),
        metrics: Iterable[Row] = (),
        appended: Mapping[str, Iterable[Row]] | None = None,
    ) -> None:
        """Buffer what `execution` did, as one unit: all of it is committed, or nothing.

        Raises Lost where its lease is gone, and the error that broke the journal where it was broken.
        """
        with self._lock:
            while self._batch.size > FULL and not self._broken:
                self._hurry = True
                self._lock.notify_all()
                self._lock.wait()
            self._check(execution)
            batch = self._batch
            if batch.size == 0:
                self._since = time.monotonic()
                self._sequence += 1
                self._lock.notify_all()
            batch.size += 1
            if execution not in batch.born:
                batch.leases[execution] = token
            for row in born:
                batch.born[row["id"]] = row
                batch.parents[row["id"]] = execution
            if change is not None:
                target = batch.born.get(execution)
                (target if target is not None else batch.changed.setdefault(execution, {})).update(change)
            for value in values:
                batch.values[value.digest] = value.data
            batch.checkpoints.extend((execution, row) for row in checkpoints)
            if node_run is not None:
                batch.node_runs[node_run["id"]] = (execution, node_run)
            if node_run_change is not None:
                key, row = node_run_change
                if key in batch.node_runs:
                    batch.node_runs[key][1].update(row)
                else:
                    batch.node_run_changes.setdefault(key, (execution, {}))[1].update(row)
            batch.metrics.extend(metrics)
            batch.outcomes.extend((execution, row) for row in outcomes)
            for name, rows in (appended or {}).items():
                batch.appended[name].extend((execution, row) for row in rows)
                batch.size += 1

    def settle(self, execution: str, *, force: bool = False) -> None:
        """Wait for the commit of all that was recorded so far, where `force` or a durability of 0 asks for it."""
        if not force and self.durability > 0:
            return
        with self._lock:
            until = self._sequence
            while self._written < until and not self._broken:
                self._hurry = True
                self._lock.notify_all()
                self._lock.wait()
            self._check(execution)

    def _check(self, execution: str) -> None:
        if self._broken is not None:
            raise self._broken
        if execution in self._lost:
            raise Lost(f"execution {execution} was taken over by another runner")

    def close(self) -> None:
        """Write what is left and stop. Raises the error that broke the journal, where one did."""
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._thread.join()
        if self._broken is not None:
            raise self._broken

    def _loop(self) -> None:
        while True:
            with self._lock:
                while self._batch.size == 0:
                    if self._closing:
                        return
                    self._lock.wait()
                while not (self._hurry or self._closing):
                    left = self._since + self.durability - time.monotonic()
                    if left <= 0:
                        break
                    self._lock.wait(left)
                batch, self._batch = self._batch, Batch()
                sequence, self._hurry = self._sequence, False
            try:
                lost = self._write(batch)
            except Exception as error:
                log.debug("journal broken", exc_info=True)
                with self._lock:
                    self._broken = error if isinstance(error, WTBError) else _unexpected(error)
                    self._lock.notify_all()
                return
            with self._lock:
                self._written = sequence
                self._lost |= lost
                self._lock.notify_all()


def _unexpected(error: Exception) -> WTBError:
    wrapped = WTBError(f"writing to the database failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
