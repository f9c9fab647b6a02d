"""A worker process: its slots, and the task that each of them runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NotRequired, TypedDict

from wtb.core.errors import NodeError, StoreError, WTBError
from wtb.store.database import Database
from wtb.store.runs.queue import Notification, pending_notifications
from wtb_workers.code.publisher import Publisher
from wtb_workers.notifications import Notifier
from wtb_workers.session import STOPPED, WorkerSession
from wtb_workers.slots import Slots, Work, Worker

log = logging.getLogger("wtb")

TURN_S = 1.0  # after which a task makes room for another sweep's
RETRY_S = 1.0  # between attempts to reach the database
PATIENCE_S = 5.0
REQUEUE_DELAY_S = 0.05  # before a message that found no free slot is sent again
CLEAN_UP_S = 300.0  # between two clean-ups of what dead workers left on this machine


class ExecutionFailed(NodeError):
    """An execution failed; the database has its status. row: describes the execution for the monitor."""

    row: Notification


class Served(TypedDict):
    """What the result of a task shows: the execution that it began with, and how many it ran."""

    ended: str
    executions: int
    execution: NotRequired[str]
    children: NotRequired[int]


class WorkerProcess:
    """The slots of this process, the database they use, and the session they work in. Shared by all their threads."""

    def __init__(self, database_url: str, worker: Worker, notifier: Notifier) -> None:
        self.database = Database(database_url)
        self._worker = worker
        self._notifier = notifier
        self._slots = Slots(worker.slots)
        self._closing = threading.Event()
        self._woken = threading.Event()
        self._turns = threading.Lock()
        self._passing_on = threading.Lock()
        self._next_turn_at = 0.0
        self._session: WorkerSession | None = None
        self._problem = "it is starting"
        self._session_keeper = threading.Thread(target=self._keep_alive, name="wtb-session", daemon=True)
        self._session_keeper.start()
        threading.Thread(target=self._dispatch, name="wtb-dispatcher", daemon=True).start()
        self._publisher = Publisher(self.database, worker.name)

    def execute(self, wanted: str) -> Served:
        """The body of a task: run the execution that a message named, and those that follow from it.

        After that it runs other pending executions for about TURN_S seconds, since a message can cost more than a node.

        Raises ExecutionFailed if one of them failed, for the monitor to show.
        """
        session = self._current_session()
        with self._slot() as number:
            if number is None:
                self._pass_on(session)
                return {"ended": "nothing to do", "executions": 0}
            return self._serve(session, number, lambda: session.next(number, wanted))

    def _pass_on(self, session: WorkerSession) -> None:
        """Send a message again that found all slots busy: another worker may have a free one.

        Of several such messages one is enough, since whoever gets it claims for all of its free slots. Were each sent
        again, and came back, they would keep this process busy with nothing else.
        """
        if self._passing_on.acquire(blocking=False):
            try:
                self._closing.wait(REQUEUE_DELAY_S)
                session.wake_slot()
            finally:
                self._passing_on.release()

    @contextmanager
    def _slot(self) -> Iterator[int | None]:
        """A free slot, or None."""
        number = self._slots.take()
        if number is None:
            yield None
            return
        with self._give_back(number):
            yield number

    @contextmanager
    def _give_back(self, number: int) -> Iterator[None]:
        """Make a slot free at the end."""
        try:
            yield
        finally:
            self._slots.give(number)
            # What came to wait after this slot looked, and before it counted as free, woke nobody.
            if self._session is not None and self._session.waiting:
                self._woken.set()

    def _dispatch(self) -> None:
        """Whenever work comes to wait in this process, have free slots take it: that is quicker than a message.

        It is one thread, so that slots which are woken at the same time become busy in one transaction.
        """
        while not self._closing.is_set():
            self._woken.wait()
            self._woken.clear()
            while (session := self._session) is not None and session.waiting and self._start_waiting(session):
                pass

    def _start_waiting(self, session: WorkerSession) -> bool:
        """Start waiting work on free slots. Returns whether there was any, and a slot for it."""
        numbers = self._slots.take_many(session.waiting)
        started: dict[int, Work] = {}
        try:
            started = session.take_waiting(numbers) if numbers else {}
        except WTBError as error:  # what was claimed is released with the session
            log.debug("%s", error)
            session.end(broken=True)
        finally:
            for number in numbers:
                if number not in started:
                    self._slots.give(number)
        for number, work in started.items():
            threading.Thread(
                target=self._run_woken, args=(session, number, work), name="wtb-woken", daemon=True
            ).start()
        return bool(started)

    def _run_woken(self, session: WorkerSession, number: int, work: Work) -> None:
        with self._give_back(number):
            try:
                self._serve(session, number, lambda: work)
            except ExecutionFailed as error:  # there is no task that could fail, so a message tells the monitor
                self._notifier.notify([error.row._replace(failed=str(error))])
            except WTBError as error:  # the session handles it
                log.debug("%s", error)

    def _serve(self, session: WorkerSession, number: int, first: Callable[[], Work | None]) -> Served:
        try:
            return self._run_all(session, number, first())
        except ExecutionFailed:
            raise
        except BaseException:
            session.end(broken=True)
            raise

    def _run_all(self, session: WorkerSession, number: int, work: Work | None) -> Served:
        ends = time.monotonic() + TURN_S
        served: Served = {"ended": "nothing to do", "executions": 0}
        failures: list[str] = []
        failed: Notification | None = None
        while work is not None:
            assignment, execution = work
            session.run(work)
            if execution.failures and failed is None:
                failed = assignment.sweep.combinations.describe(execution)
            failures += execution.failures
            if not served["executions"]:
                served |= {"execution": execution.id, "ended": execution.status, "children": execution.children}
            served["executions"] += 1
            if time.monotonic() > ends and self._end_task(session, number):
                break
            work = session.next(number, None)
        if failed is not None:
            more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
            error = ExecutionFailed(f"execution {failures[0]}{more}")
            error.row = failed
            raise error
        return served

    def _end_task(self, session: WorkerSession, number: int) -> bool:
        """Free the slot and send a notification for the next task. Returns whether the task should end.

        It should not if the broker is unreachable: nobody else would wake this slot. The slots of a process end their
        tasks one after the other, since all of them at once would leave it idle.
        """
        if session.waiting or not self._notifier.healthy:
            return False
        with self._turns:
            if time.monotonic() < self._next_turn_at:
                return False
            self._next_turn_at = time.monotonic() + TURN_S
        session.leave_slot(number)
        self._notifier.notify(pending_notifications(self.database))
        return True

    def _current_session(self) -> WorkerSession:
        """The current session of this process; it may take a moment to start."""
        ends = time.monotonic() + PATIENCE_S
        while (session := self._session) is None or session.ended:
            if time.monotonic() > ends or self._closing.wait(0.01):
                raise StoreError(
                    f"this worker cannot run anything now ({self._problem}); the scheduler will notify it again"
                )
        return session

    def _keep_alive(self) -> None:
        """Keep a session as long as the process lives: start a new one if the last was lost. Clean up now and then."""
        cleaned_at = time.monotonic()
        while not self._closing.is_set():
            try:
                if self._session is None or self._session.ended:
                    self._start_session()
                elif time.monotonic() - cleaned_at > CLEAN_UP_S:
                    cleaned_at = time.monotonic()
                    self._session.clean_up()
                self._problem = ""
            except Exception as error:  # noqa: BLE001 - it may pass, and is logged
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.error("%s", error)
            self._closing.wait(RETRY_S)

    def _start_session(self) -> None:
        if self._session is not None:
            self._session.release_leases()
        session = self._session = WorkerSession(
            self.database, self._worker, self._notifier, self._slots, self._woken.set
        )
        if self._closing.is_set():  # asked to stop while the session was starting
            session.stop(STOPPED)
            return
        # What is pending may have no message: whoever received it died, or found no free slot.
        self._notifier.notify(pending_notifications(self.database))

    def stop(self, reason: str, *, quick: bool = False) -> None:
        """Take no more work. Running nodes have their grace period, unless `quick`."""
        self._closing.set()
        if self._session is not None:
            self._session.stop(reason)
            if quick:
                self._session.end_nodes()

    def close(self) -> None:
        """Commit results, release leases and clean up. Called when all tasks have ended."""
        self._closing.set()
        self._woken.set()
        self._session_keeper.join(PATIENCE_S)
        if self._session is not None:
            self._session.end()
        self._publisher.close(PATIENCE_S)
        self._notifier.close(PATIENCE_S)
        self.database.close()
