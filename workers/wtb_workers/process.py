"""A worker process: its slots, and the task that each of them runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from wtb.core.errors import NodeError, StoreError, WTBError
from wtb.store.database import Database
from wtb.store.runs.queue import pending_notifications
from wtb_workers.life import STOPPED, Life, Slots, Work, Worker
from wtb_workers.notifications import Notifier

log = logging.getLogger("wtb")

TURN_S = 1.0  # after which a task makes room for another sweep's
RETRY_S = 1.0  # between attempts to reach the database
PATIENCE_S = 5.0
PASSING_ON_S = 0.05  # until a message is sent anew for which no slot of this process is free
TIDY_S = 300.0  # between two looks for what dead workers of this machine left behind


class ExecutionFailed(NodeError):
    """An execution has failed; its cells say so in the database. row: what a message about it says."""

    row: dict[str, Any]


class WorkerProcess:
    """Slots that run executions. Made after a fork; threads share it, one for each slot."""

    def __init__(self, database_url: str, worker: Worker, notifier: Notifier) -> None:
        self.database = Database(database_url)
        self._worker = worker
        self._bells = notifier
        self._slots = Slots(worker.slots)
        self._closing = threading.Event()
        self._life: Life | None = None
        self._problem = "it begins"
        self._keeper = threading.Thread(target=self._keep_alive, name="wtb-session", daemon=True)
        self._keeper.start()

    def execute(self, wanted: str) -> dict[str, Any]:
        """The body of a task: run the execution that a message named, and what follows from it.

        Then what else there is, for a second or so, since a message costs more than many a node. Raises
        ExecutionFailed where one of them failed, for the monitor to show.
        """
        life = self._living()
        with self._slot() as number:
            if number is None:  # all are lent: another worker may have one
                self._closing.wait(PASSING_ON_S)
                life.call()
                return {"ended": "nothing to do", "executions": 0}
            return self._serve(life, number, lambda: life.next(number, wanted))

    @contextmanager
    def _slot(self) -> Iterator[int | None]:
        """A slot that is free, if there is one."""
        number = self._slots.take()
        try:
            yield number
        finally:
            if number is not None:
                self._slots.give(number)

    def _wake(self, count: int) -> None:
        """Have slots that are free take what waits in this process: that is quicker than by a message."""
        for _ in range(min(count, len(self._slots))):
            threading.Thread(target=self._take_waiting, name="wtb-woken", daemon=True).start()

    def _take_waiting(self) -> None:
        life = self._life
        with self._slot() as number:
            if life is None or number is None:
                return
            try:
                self._serve(life, number, lambda: life.take_waiting(number))
            except ExecutionFailed as error:  # of no task, and a monitor is to show it all the same
                self._bells.notify([{**error.row, "failed": str(error)}])
            except WTBError as error:  # whoever holds the leases sees to it
                log.debug("%s", error)

    def _serve(self, life: Life, number: int, first: Callable[[], Work | None]) -> dict[str, Any]:
        try:
            return self._served(life, number, first())
        except ExecutionFailed:
            raise
        except BaseException:
            life.end(broken=True)
            raise

    def _served(self, life: Life, number: int, work: Work | None) -> dict[str, Any]:
        ends = time.monotonic() + TURN_S
        first: dict[str, Any] | None = None
        ran, failures, row = 0, list[str](), dict[str, Any]()
        while work is not None:
            share, execution = work
            life.run(work)
            ran += 1
            if execution.failures and not failures:
                row = share.sweep.words(execution)
            failures += execution.failures
            if first is None:
                first = {"execution": execution.id, "ended": execution.status, "children": execution.children}
            if time.monotonic() > ends and self._hand_over(life, number):
                break
            work = life.next(number, None)
        if failures:
            more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
            failed = ExecutionFailed(f"execution {failures[0]}{more}")
            failed.row = row
            raise failed
        return {**(first or {"ended": "nothing to do"}), "executions": ran}

    def _hand_over(self, life: Life, number: int) -> bool:
        """End this task and ring for the next one, unless the broker is deaf: then nobody else would wake this slot."""
        if life.has_waiting or not self._bells.healthy:
            return False
        life.leave(number)
        self._bells.notify(pending_notifications(self.database))
        return True

    def _living(self) -> Life:
        """This process's life; it may take a moment to begin."""
        ends = time.monotonic() + PATIENCE_S
        while (life := self._life) is None or life.ended:
            if time.monotonic() > ends or self._closing.wait(0.01):
                raise StoreError(f"this worker cannot work just now ({self._problem}); the tick rings again")
        return life

    def _keep_alive(self) -> None:
        """Have a life as long as the process lives: another one where the last was lost. Also tidy up now and then."""
        tidied = time.monotonic()
        while not self._closing.is_set():
            try:
                if self._life is None or self._life.ended:
                    self._begin_life()
                elif time.monotonic() - tidied > TIDY_S:
                    tidied = time.monotonic()
                    self._life.tidy()
                self._problem = ""
            except Exception as error:  # noqa: BLE001 - whatever it is may pass, and is said
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.error("%s", error)
            self._closing.wait(RETRY_S)

    def _begin_life(self) -> None:
        if self._life is not None:
            self._life.settle()
        life = self._life = Life(self.database, self._worker, self._bells, self._slots, self._wake)
        if self._closing.is_set():  # we were told to stop while it began
            life.stop(STOPPED)

    def stop(self, reason: str, *, quick: bool = False) -> None:
        """Take no more work; nodes have their grace, unless it is to be quick."""
        self._closing.set()
        if self._life is not None:
            self._life.stop(reason)
            if quick:
                self._life.end_nodes()

    def close(self) -> None:
        """Commit, give back, and leave nothing behind. Called when all tasks have ended."""
        self._closing.set()
        self._keeper.join(PATIENCE_S)
        if self._life is not None:
            self._life.end()
        self._bells.close(PATIENCE_S)
        self.database.close()
