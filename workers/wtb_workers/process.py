"""A worker process: its slots, the tasks that run on them, and the registered code that it publishes."""

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
from wtb.core.work_record import TaskCounts
from wtb.hosting.registered_code import RegisteredCode
from wtb.store import publications
from wtb.store.database import Database
from wtb.store.files.locations import workspaces_of
from wtb.store.runs.publishing import next_published, publish, publish_again, withdraw_task
from wtb.store.runs.queue import ClaimOutcome
from wtb_workers.scorings import NotHere, ScoringResult
from wtb_workers.session import STOPPED, WorkerSession
from wtb_workers.slots import Slots, TaskRun, Work, Worker
from wtb_workers.task_messages import Delivery, TaskSender

log = logging.getLogger("wtb")

LOOK_S = 2.0  # between two looks at what has changed


class Publisher:
    """A thread that publishes. Code that it cannot import is published with the error."""

    def __init__(self, database: Database, worker: str) -> None:
        self._database = database
        self._worker = worker
        self._registered = RegisteredCode(workspaces_of(database), "publishing")
        self._problem = ""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep_published, name="wtb-publisher", daemon=True)
        self._thread.start()

    def close(self, patience_s: float) -> None:
        """End the thread. Publications stay, because another worker may run them."""
        self._closing.set()
        self._thread.join(patience_s)

    def _keep_published(self) -> None:
        while not self._closing.is_set():
            try:
                self.look()
                self._problem = ""
            except WTBError as error:  # the database is out of reach, or the file that registers cannot be read
                if str(error) != self._problem:
                    self._problem = str(error)
                    log.error("%s", error)
            self._closing.wait(LOOK_S)

    def look(self) -> None:
        """Publish what has changed since the last look. Raises WTBError."""
        if self._registered.look():
            publications.publish(self._database, self._worker, self._registered.publications)


T = TypeVar("T")

RETRY_S = 1.0  # between attempts to reach the database
PATIENCE_S = 5.0
LENDING_S = 0.02  # between two looks whether free slots may take branches of other slots' tasks
LENT_S = 0.5  # that a message waits for a slot which was lent to a branch of another task
REQUEUE_DELAY_S = 0.2  # before a message that this process cannot take now goes back to its queue
CLEAN_UP_S = 300.0  # between two clean-ups of what dead workers left on this machine


class TaskState(Enum):
    """The end of a task without a result.

    Attributes:
        DROPPED: There was nothing to do, because its message came twice.
        WITHDRAWN: It will not run, because its sweep is not running, or was cancelled.
        RETRIED: Another task continues its work.
        REQUEUED: Its message goes back to the queue, for a worker that can take it.
    """

    DROPPED = "dropped"
    WITHDRAWN = "withdrawn"
    RETRIED = "retried"
    REQUEUED = "requeued"


class Unfinished(Exception):
    """A task has no result. `reason` is shown to people."""

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
            claimed: Called once this process has claimed it.

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
                    session.free_slot(number)
            point("task.done")
            return self._result(run)

    def score(self, id: str) -> ScoringResult:
        """Score a sweep again, for a task. Raises Unfinished, ScoringFailed."""
        with self._session_of_task() as session, self._slot() as number:
            try:
                scoring_result = session.scorings.run(number, id)
            except NotHere:
                # A requeued message may come back to this worker at once; without a pause it would do nothing else.
                self._closing.wait(REQUEUE_DELAY_S)
                raise Unfinished(TaskState.REQUEUED) from None
            self.publish()
            if scoring_result is None:
                raise Unfinished(TaskState.DROPPED)
            return scoring_result

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
        """Use the current session during the block. If it ends, other tasks continue the work. Raises Unfinished."""
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
        """Use a free slot during the block. Raises Unfinished if all are lent to branches of other tasks."""
        number = self._slots.acquire(LENT_S)
        if number is None:
            raise Unfinished(TaskState.REQUEUED, "all slots of this worker are busy")
        with self._releasing(number):
            yield number

    @contextmanager
    def _releasing(self, number: int) -> Iterator[None]:
        """Free a slot at the end of the block."""
        try:
            yield
        finally:
            self._slots.release(number)
            # Work that was added after this slot looked, and before it counted as free, has woken nobody.
            if self._session is not None and (self._session.waiting or not self._sender.healthy):
                self._woken.set()

    # Work without messages.

    def _dispatch(self) -> None:
        """Start work that waits in this process on free slots, which is quicker than a message.

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
        """Return the seconds until the dispatcher looks for work again, unless it is woken before."""
        if self._session is not None and self._session.waiting and len(self._slots):
            # Branches wait until published tasks are claimed, and a claim wakes nobody.
            return LENDING_S
        return None if self._sender.healthy else RETRY_S

    def _start_waiting(self, session: WorkerSession) -> bool:
        """Start waiting work on free slots. Returns whether there was any, and a slot for it."""
        numbers = self._slots.acquire_many(session.waiting)
        started: dict[int, Work] = {}
        try:
            started = session.assign_waiting(numbers) if numbers else {}
        except WTBError as error:
            # The claimed work is released with the session.
            log.debug("%s", error)
            session.end(broken=True)
        finally:
            for number in numbers:
                if number not in started:
                    self._slots.release(number)
        for number, work in started.items():
            threading.Thread(
                target=self._run_waiting, args=(session, number, work), name="wtb-lent", daemon=True
            ).start()
        return bool(started)

    def _run_waiting(self, session: WorkerSession, number: int, work: Work | None) -> None:
        """Run work of other slots' tasks on a lent slot."""
        with self._releasing(number):
            try:
                while work is not None:
                    session.run(work)
                    work = session.next_waiting(work[0])
                session.free_slot(number)
            except BaseException as error:  # noqa: BLE001 - the tasks whose work it was end with the session
                log.debug("%s", error)
                session.end(broken=True)

    def _start_published(self) -> bool:
        """Start a published task without a message. Returns whether there was one, and a slot for it."""
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
        start_event = threading.Event()
        threading.Thread(
            target=self._run_published, args=(task_id, start_event), name="wtb-unsent", daemon=True
        ).start()
        return start_event.wait(PATIENCE_S)

    def _run_published(self, task_id: str, start_event: threading.Event) -> None:
        try:
            self.execute(task_id, start_event.set)
        except (WTBError, Unfinished) as error:
            log.debug("%s", error)

    # Publishing.

    def publish(self) -> None:
        """Publish pending executions soon, and send their tasks."""
        self._sender.submit(self._publish)

    def replace_task(self, task_id: str) -> None:
        """Publish the executions of a task whose message was revoked as another one, unless they were cancelled.

        Under its old id, a worker that remembers the revocation would drop it again.
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
        """Send tasks that were published while the broker was away. Raises errors of the broker's client."""
        with app.producer_or_acquire() as producer:
            producer.channel.client.ping()
        with suppress(StoreError):
            self._deliver(publish_again(self.database, RETRY_S))

    # Its session.

    def _current_session(self) -> WorkerSession:
        """Return the current session of this process, which may take a moment to start. Raises StoreError."""
        ends = time.monotonic() + PATIENCE_S
        while (session := self._session) is None or session.ended:
            if time.monotonic() > ends or self._closing.wait(0.01):
                raise StoreError(f"this worker cannot run executions now ({self._problem})")
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
        # `stop` may have come while the session was starting, and then found none to stop.
        if self._closing.is_set():
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
        self.publish()
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
