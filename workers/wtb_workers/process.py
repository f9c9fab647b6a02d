"""A worker process: its slots, and the tasks that run on them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TypeVar

from celery import Celery

from wtb.core.errors import StoreError, WTBError
from wtb.core.fault_points import point
from wtb.core.telemetry.task_record import TaskCounts
from wtb.store.database import Database
from wtb.store.runs.publishing import next_published, publish, publish_again, withdraw_task
from wtb.store.runs.queue import ClaimOutcome
from wtb_workers.code.publisher import Publisher
from wtb_workers.scorings import NotHere, ScoringResult
from wtb_workers.session import STOPPED, WorkerSession
from wtb_workers.slots import Slots, TaskRun, Work, Worker
from wtb_workers.task_messages import Delivery, TaskSender

log = logging.getLogger("wtb")
T = TypeVar("T")

RETRY_S = 1.0  # between attempts to reach the database
PATIENCE_S = 5.0
LENDING_S = 0.02  # between two looks whether free slots may take branches of other slots' tasks
LENT_S = 0.5  # that a message waits for a slot which was lent to a branch of another task
REQUEUE_DELAY_S = 0.2  # before a message that this process cannot take now goes back to its queue
CLEAN_UP_S = 300.0  # between two clean-ups of what dead workers left on this machine


class TaskState(Enum):
    """How a task came to its end without a result.

    DROPPED: nothing was to be done: its message came twice.
    WITHDRAWN: it will not run: its sweep does not run now, or was cancelled.
    RETRIED: another task goes on with its work.
    REQUEUED: its message goes back to the queue, for a worker that can take it.
    """

    DROPPED = "dropped"
    WITHDRAWN = "withdrawn"
    RETRIED = "retried"
    REQUEUED = "requeued"


class Unfinished(Exception):
    """A task has no result. reason: for people."""

    def __init__(self, state: TaskState, reason: str = "") -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason


class CellsFailed(WTBError):
    """Cells of a task failed; the database has their outcomes."""


class WorkerProcess:
    """The slots of this process, the database they use, and the session they work in. Shared by all their threads."""

    def __init__(self, database_url: str, worker: Worker, app: Celery) -> None:
        self.database = Database(database_url)
        self._worker = worker
        self._slots = Slots(worker.slots)
        self._closing = threading.Event()
        self._woken = threading.Event()
        self._session: WorkerSession | None = None
        self._problem = "it is starting"
        self._deliver = Delivery(self.database, app)
        self._sender = TaskSender(app, changed=self._woken.set, recovered=self._send_again)
        self._session_keeper = threading.Thread(target=self._keep_alive, name="wtb-session", daemon=True)
        self._session_keeper.start()
        threading.Thread(target=self._dispatch, name="wtb-dispatcher", daemon=True).start()
        self._publisher = Publisher(self.database, worker.name)

    # Tasks.

    def execute(self, task_id: str, claimed: Callable[[], object] = lambda: None) -> TaskCounts:
        """Run a published task.

        Args:
            task_id: Its id.
            claimed: Called once it is this process's.

        Returns:
            Its counts.

        Raises:
            CellsFailed: Some of its cells failed.
            Unfinished: It has no result.
        """
        with self._session_of_task() as session, self._slot() as number:
            outcome, run = session.claim(number, task_id)
            if run is None:
                self.publish()
                raise _unclaimed(outcome, self._closing)
            claimed()
            try:
                session.work_off(run)
            finally:
                with suppress(StoreError):
                    session.leave_slot(number)
            point("task.done")
            return self._result(run)

    def score(self, id: str) -> ScoringResult:
        """Score a sweep again, as a task asks for. Raises Unfinished, ScoringFailed."""
        with self._session_of_task() as session, self._slot() as number:
            try:
                result = session.scorings.run(number, id)
            except NotHere:
                self._closing.wait(REQUEUE_DELAY_S)
                raise Unfinished(TaskState.REQUEUED) from None
            self.publish()
            if result is None:
                raise Unfinished(TaskState.DROPPED)
            return result

    def _result(self, run: TaskRun) -> TaskCounts:
        """Return the counts of a task that has ended, after the next ones were published."""
        self.publish()
        if (error := run.record.error()) is not None:
            raise CellsFailed(error)
        if run.is_cancelled:
            raise Unfinished(TaskState.WITHDRAWN, run.given_up or "")
        if run.given_up is not None:
            raise Unfinished(TaskState.RETRIED, run.given_up)
        return run.record.counts

    @contextmanager
    def _session_of_task(self) -> Iterator[WorkerSession]:
        """The current session. If it ends in between, other tasks continue with the work. Raises Unfinished."""
        try:
            session = self._current_session()
        except StoreError as error:
            raise Unfinished(TaskState.REQUEUED, str(error)) from error
        try:
            yield session
        except StoreError as error:
            session.end(broken=True)
            raise Unfinished(TaskState.RETRIED, str(error)) from error
        except (WTBError, Unfinished):
            raise
        except BaseException:
            session.end(broken=True)
            raise

    @contextmanager
    def _slot(self) -> Iterator[int]:
        """A free slot. Raises Unfinished if all are lent to branches of other tasks."""
        number = self._slots.take(LENT_S)
        if number is None:
            raise Unfinished(TaskState.REQUEUED, "all slots of this worker are busy")
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
            if self._session is not None and (self._session.waiting or not self._sender.healthy):
                self._woken.set()

    # Work without messages.

    def _dispatch(self) -> None:
        """Whenever work comes to wait in this process, have free slots take it: that is quicker than a message.

        It is one thread, so that slots which are woken at the same time become busy in one transaction. While the
        broker is away, it claims published tasks, too.
        """
        while not self._closing.is_set():
            self._woken.wait(self._next_look_s())
            self._woken.clear()
            while (session := self._session) is not None and session.waiting and self._start_waiting(session):
                pass
            while not self._sender.healthy and self._start_published():
                pass

    def _next_look_s(self) -> float | None:
        """Return the seconds after which work is looked for again, unless somebody wakes the dispatcher before."""
        if self._session is not None and self._session.waiting and len(self._slots):
            return LENDING_S  # branches wait for published tasks to be claimed, which wakes nobody
        return None if self._sender.healthy else RETRY_S

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
                target=self._run_waiting, args=(session, number, work), name="wtb-lent", daemon=True
            ).start()
        return bool(started)

    def _run_waiting(self, session: WorkerSession, number: int, work: Work | None) -> None:
        """Run work of other slots' tasks on a lent slot."""
        with self._give_back(number):
            try:
                while work is not None:
                    session.run(work)
                    work = session.next_waiting(work[0])
                session.leave_slot(number)
            except BaseException as error:  # noqa: BLE001 - the tasks whose work it was end with the session
                log.debug("%s", error)
                session.end(broken=True)

    def _start_published(self) -> bool:
        """Start a published task without a message, as if one had come. Returns whether there was one, and a slot."""
        session = self._session
        if session is None or session.stopping is not None or not len(self._slots):
            return False
        try:
            publish(self.database)
            task_id = next_published(self.database, self._worker.queues)
        except StoreError as error:
            log.debug("%s", error)
            return False
        if task_id is None:
            return False
        begun = threading.Event()
        threading.Thread(target=self._run_published, args=(task_id, begun), name="wtb-unsent", daemon=True).start()
        return begun.wait(PATIENCE_S)

    def _run_published(self, task_id: str, begun: threading.Event) -> None:
        try:
            self.execute(task_id, begun.set)
        except (WTBError, Unfinished) as error:
            log.debug("%s", error)

    # Publishing.

    def publish(self) -> None:
        """Publish pending executions soon, and send their tasks."""
        self._sender.submit(self._publish)

    def replace_task(self, task_id: str) -> None:
        """Publish the executions of a task whose message was revoked as another one, unless they were cancelled.

        Under its id a worker that knows of the revocation would drop it again.
        """

        def withdraw_and_publish(app: Celery) -> None:
            with suppress(StoreError):
                withdraw_task(self.database, task_id)
            self._publish(app)

        self._sender.submit(withdraw_and_publish)

    def _publish(self, app: Celery) -> None:
        with suppress(StoreError):  # the scheduler publishes, too
            if tasks := publish(self.database):
                self._deliver(tasks)

    def _send_again(self, app: Celery) -> None:
        """Send what was published while the broker was away. Raises what the client of the broker raises."""
        with app.producer_or_acquire() as producer:
            producer.channel.client.ping()
        with suppress(StoreError):
            self._deliver(publish_again(self.database, RETRY_S))

    # Its session.

    def _current_session(self) -> WorkerSession:
        """The current session of this process; it may take a moment to start."""
        ends = time.monotonic() + PATIENCE_S
        while (session := self._session) is None or session.ended:
            if time.monotonic() > ends or self._closing.wait(0.01):
                raise StoreError(f"this worker cannot run anything now ({self._problem})")
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
        session = self._session = WorkerSession(self.database, self._worker, self.publish, self._slots, self._woken.set)
        if self._closing.is_set():  # asked to stop while the session was starting
            session.stop(STOPPED)
            return
        self.publish()

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
        self.publish()  # what was released, for other workers
        self._publisher.close(PATIENCE_S)
        self._sender.close(PATIENCE_S)
        self.database.close()


_STATES = {
    ClaimOutcome.GONE: TaskState.DROPPED,
    ClaimOutcome.WITHDRAWN: TaskState.WITHDRAWN,
    ClaimOutcome.REFUSED: TaskState.REQUEUED,
    ClaimOutcome.OUTRANKED: TaskState.REQUEUED,
}


def _unclaimed(outcome: ClaimOutcome, closing: threading.Event) -> Unfinished:
    state = _STATES[outcome]
    if state is TaskState.REQUEUED:
        closing.wait(REQUEUE_DELAY_S)
    return Unfinished(state, f"its executions are {outcome.value}")
