"""The buffer between runner and store: records are committed in batches, a bounded time after they are made."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

from wtb.core.errors import ConflictError, StoreError, WTBError
from wtb.core.work_record import FLUSHES
from wtb.store.runs.batch import Batch, Recorded

log = logging.getLogger(__name__)

LATE_S = 0.01
STARVED_S = 0.001  # that this thread waits for the interpreter
GROUP_S = 0.02  # with a durability of 0, what nobody waits for is committed with what follows within this time
# Records. Slots that are ahead by more wait until the journal's thread has taken them. It has the interpreter then, and
# the database writes while they go on: where it had to wait for its turns among quick nodes, it wrote when they ended.
FULL = 1_000
# Where a commit takes longer than so many seconds, the next ones take fewer records: who follows a log waits for all
# transactions that are older, and on SQLite everybody who writes waits.
COMMIT_S = 0.5
_LEAST = 50


class Lost(ConflictError):
    """Another runner has the lease of this execution now: stop working on it."""


class Journal:
    """Collects what runners did and writes it from a thread of its own.

    Args:
        write: Writes a batch, and returns the executions that lost their lease.
        durability: Seconds from the first buffered record to the commit. With 0, each `flush` waits for a commit.
        waits: Called with an error of the database; may wait until writing can succeed. Returns whether to write again.
    """

    def __init__(
        self,
        write: Callable[[Batch], set[str]],
        durability: float,
        waits: Callable[[StoreError], bool] = lambda error: False,
    ) -> None:
        self._write = write
        self._waits = waits
        self.durability = durability
        # Slots append and the journal's thread takes. A lock that every quick node asks for several times makes the
        # slots wait in line for it: it doubled what they cost.
        self._records: deque[tuple[str, int, Recorded] | Callable[[], None]] = deque()
        self._some = threading.Event()
        self._hurry = threading.Event()
        self._open = threading.Event()
        self._open.set()
        self._max_records = 2 * FULL  # records of the next commit
        # Slots, by thread, and the calls that end the waits of those that wait for a commit. Both change without a
        # lock: adding to a set and discarding from it are atomic.
        self._working: set[int] = set()
        self._waiting: set[Callable[[], None]] = set()
        self._all_wait = threading.Event()
        self._commit_s = 0.0  # moving average
        self._closing = False
        self._lost: set[str] = set()
        self._claimed: dict[str, int] = {}  # executions that were claimed again, by the token that counts now
        self._broken: WTBError | None = None
        self._thread = threading.Thread(target=self._loop, name="wtb-journal", daemon=True)
        self._thread.start()

    def record(self, execution: str, token: int, **rows: Unpack[Recorded]) -> None:
        """Buffer what `execution` did, as one unit: all of it is committed, or nothing.

        Raises Lost if its lease is gone, and the error that broke the journal if it is broken.
        """
        # All three are empty nearly always: the call is saved for every record of quick nodes.
        if self._broken is not None or self._lost or self._claimed:
            self._check(execution, token)
        if len(self._records) >= FULL:
            self._pause_recording()
        if not self._open.is_set():
            self._wait_for(self._open, execution)
        self._records.append((execution, token, rows))
        # Setting an event takes a lock, and most records find it set.
        if not self._some.is_set():
            self._some.set()

    @contextmanager
    def slot(self) -> Iterator[None]:
        """Count the calling thread as a slot that works, so that it may soon wait for a commit."""
        slot = threading.get_ident()
        self._working.add(slot)
        try:
            yield
        finally:
            self._stop_counting(slot)

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Do not count the calling thread, a slot, while it waits for others."""
        slot = threading.get_ident()
        self._stop_counting(slot)
        try:
            yield
        finally:
            self._working.add(slot)

    def _stop_counting(self, slot: int) -> None:
        self._working.discard(slot)
        self._end_gathering()

    def accept_claim(self, execution: str, token: int) -> None:
        """Accept records of an execution under its new token; records under an older one are dropped."""
        # Under a first claim, no record of an earlier one can be in the buffer.
        if token > 1:
            self._claimed[execution] = token
            self._lost.discard(execution)

    def flush(self, execution: str, *, force: bool = False) -> None:
        """Wait for the commit of all records so far, if `force` is set or the durability is 0."""
        if not force and self.durability > 0:
            return
        written = threading.Event()
        # Before the call is queued, because the journal's thread removes it from the set when it takes it.
        self._waiting.add(written.set)
        self.after_commit(written.set)
        self._end_gathering()
        self._wait_for(written, execution)
        self._check(execution)

    def _wait_for(self, event: threading.Event, execution: str) -> None:
        """Wait for what the journal's thread sets. Raises Lost where that has ended."""
        while not event.wait(1.0):
            if not self._thread.is_alive():
                raise Lost(f"execution {execution}: its runner lost its leases")

    def after_commit(self, call: Callable[[], None]) -> None:
        """Commit soon, then call `call` on the journal's thread; it must be quick."""
        self._records.append(call)
        self._hurry.set()
        self._some.set()

    def _gather(self) -> None:
        """Let other slots join a commit that some wait for: until all wait, or for half the duration of a commit."""
        self._all_wait.clear()
        if len(self._waiting) < len(self._working):
            self._all_wait.wait(min(self._commit_s / 2, GROUP_S))

    def _end_gathering(self) -> None:
        """Have the commit begin if all slots that work wait for it."""
        if len(self._waiting) >= len(self._working):
            self._all_wait.set()

    def _pause_recording(self) -> None:
        """Accept no more records until the journal's thread has taken the buffered ones."""
        self._open.clear()
        # Only now: whatever the journal's thread did meanwhile, it goes round once more, and opens again.
        self._hurry.set()
        self._some.set()

    def _check(self, execution: str, token: int | None = None) -> None:
        if self._broken is not None:
            raise self._broken
        if execution in self._lost or (token is not None and token < self._claimed.get(execution, 0)):
            raise Lost(f"execution {execution} was reclaimed by another runner")

    def close(self) -> None:
        """Write what is left and stop. Raises the error that broke the journal, if one did."""
        self._closing = True
        self._hurry.set()
        self._some.set()
        self._thread.join()
        if self._broken is not None:
            raise self._broken

    def reopen(self) -> None:
        """Accept records again. Called by `write` when the database has all rows and only the commit is left."""
        self._open.set()

    def _loop(self) -> None:
        """Commit a batch at most `durability` seconds after its first record, until the journal closes."""
        patience = self.durability or GROUP_S
        since = time.monotonic()
        while self._records or not self._closing:
            if not self._records:
                self._some.wait()
                since = time.monotonic()
            self._hurry.wait(max(0.0, since + patience - time.monotonic()))
            is_late = time.monotonic() - since > patience + LATE_S
            if self._waiting and not self.durability:
                self._gather()
            # Cleared before the records are taken, so that whatever is recorded meanwhile wakes the next round.
            self._some.clear()
            self._hurry.clear()
            # Quick nodes leave this thread so little of the interpreter that it cannot keep its promise: they wait
            # until it has taken the buffered records. Where it is only the database that is slow, that wins nothing.
            if is_late and _is_starved():
                self._open.clear()
            since = time.monotonic()  # records from now on belong to the next batch
            if self._commit():
                self._hurry.set()
            self._open.set()

    def _commit(self) -> bool:
        """Write the records buffered so far, then make the calls that wait for them. An error breaks the journal.

        Returns whether more of them are left than one commit takes.
        """
        batch = Batch()
        callbacks: list[Callable[[], None]] = []
        is_part = False
        try:
            count = len(self._records)
            is_part = count > self._max_records
            # Bounded by the count at the beginning: slots append meanwhile, and the commit would not come to an end.
            for _ in range(min(count, self._max_records)):
                record = self._records.popleft()
                if isinstance(record, tuple):
                    execution, token, rows = record
                    if token >= self._claimed.get(execution, 0):
                        batch.add(execution, token, **rows)
                    else:
                        batch.drop(rows)
                else:
                    callbacks.append(record)
                    self._waiting.discard(record)
            if batch.size and self._broken is None:
                started = time.monotonic()
                lost_ids = self._write_batch(batch)
                took_s = time.monotonic() - started
                self._commit_s += (took_s - self._commit_s) / 4
                self._adapt(took_s, min(count, self._max_records), is_part)
                # Of those that were claimed again meanwhile, what was done under the new token is not lost.
                self._lost |= {id for id in lost_ids if batch.leases.get(id, 1) >= self._claimed.get(id, 0)}
        # Any error, because no other thread writes: slots that wait for this one have to find out.
        except Exception as error:
            log.log(logging.DEBUG if isinstance(error, StoreError) else logging.ERROR, "journal broken", exc_info=True)
            self._broken = error if isinstance(error, WTBError) else _unexpected(error)
        # Called after a failure, too: whoever waits then raises the error that broke the journal.
        for call in callbacks:
            call()
        return is_part

    def _adapt(self, took_s: float, count: int, is_part: bool) -> None:
        """Take as many records in the next commit as are written in time, given how long so many have taken."""
        if took_s > COMMIT_S:
            self._max_records = max(_LEAST, min(self._max_records, round(count * COMMIT_S / took_s)))
        # Grows only if the limit cut this commit short; a quick commit of few records proves nothing.
        elif is_part:
            self._max_records *= 2

    def _write_batch(self, batch: Batch) -> set[str]:
        """Write a batch, again as long as `waits` says so. Returns the executions that lost their lease."""
        while True:
            try:
                with FLUSHES.timed(next(iter(batch.leases), None)):
                    return self._write(batch)
            except StoreError as error:
                if not self._waits(error):
                    raise


def _is_starved() -> bool:
    """Return whether other threads keep the interpreter from this one for longer than `STARVED_S`."""
    began = time.monotonic()
    time.sleep(0)  # lets go of the interpreter
    return time.monotonic() - began > STARVED_S


def _unexpected(error: Exception) -> WTBError:
    wrapped = WTBError(f"writing to the database failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
