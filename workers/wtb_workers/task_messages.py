"""Messages of tasks: the description, for Celery and its monitors, of the work that the database publishes."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from celery import Celery

from wtb.config.broker import queue_key
from wtb.config.run_options import redactor_of
from wtb.store.database import Database
from wtb.store.runs.publishing import MOST_DESCRIBED, Task, cluster_of

log = logging.getLogger("wtb")

EXECUTE = "wtb.execute"
SCORE = "wtb.score"
SCHEDULER = "wtb.scheduler"
RETRY_S = 1.0  # after which a broker that was out of reach is tried again
_MOST_CHARS = 2000  # of arguments that a monitor shows
_MOST_WAITING = 1000  # batches of tasks; the scheduler sends again what is dropped


def send(app: Celery, cluster: str, tasks: Iterable[Task]) -> None:
    """Send the messages of published tasks. Raises errors of the broker's client."""
    with app.producer_or_acquire() as producer:
        for task in tasks:
            name, args, kwargs = _describe_task(task)
            app.send_task(
                EXECUTE if task.size else SCORE,
                task_id=task.id,
                queue=queue_key(task.queue, cluster),
                producer=producer,
                # The caller handles a broker that is away, and must not wait for it.
                retry=False,
                # What a monitor shows as its name, arguments and keyword arguments.
                shadow=name,
                argsrepr=args,
                kwargsrepr=kwargs,
            )


def _describe_task(task: Task) -> tuple[str, str, str]:
    """Return name, cases and choices of a task, redacted, because everyone with access to a monitor sees them."""
    redactor = redactor_of(task.redact)
    if not task.size:
        return redactor.text(f"score {task.sweep}"), "", ""
    cases = ", ".join(task.cases)
    if task.size >= MOST_DESCRIBED:
        cases = f"{task.cases[0]} to {task.cases[-1]}, {task.size:,} executions"
    choices = " ".join(f"{node}={variant}" for node, variant in task.choices.items())
    return redactor.text(task.sweep), redactor.text(cases)[:_MOST_CHARS], redactor.text(choices)[:_MOST_CHARS]


def report_retried(app: Celery, reasons: Mapping[str, str]) -> None:
    """Report tasks to monitors whose work other tasks continue, with the reason for each."""
    with app.connection_for_write() as connection, app.events.Dispatcher(connection, hostname="scheduler") as events:
        for task_id, reason in reasons.items():
            events.send("task-retried", uuid=task_id, exception=reason, traceback="")


class Delivery:
    """Sends the published tasks of a database."""

    def __init__(self, database: Database, app: Celery) -> None:
        self._app = app
        self._database = database
        self._cluster: str | None = None

    def __call__(self, tasks: Sequence[Task], retried: Mapping[str, str] = MappingProxyType({})) -> None:
        """Send tasks, and report to monitors those that other tasks continue, by reason.

        Raises errors of the broker's client, and StoreError.
        """
        if self._cluster is None:
            self._cluster = cluster_of(self._database)
        send(self._app, self._cluster, tasks)
        if retried:
            report_retried(self._app, retried)


class Transfer(Protocol):
    """A call that talks to the broker. Raises errors of its client."""

    def __call__(self, app: Celery) -> object: ...


class TaskSender:
    """Talks to the broker from a thread of its own, so that a broker that hangs does not hold up work.

    Messages that cannot be sent are dropped: the database keeps published tasks, and the scheduler sends them again.

    Attributes:
        healthy: Whether the broker accepted the last message.
    """

    def __init__(
        self,
        app: Celery,
        *,
        report: Callable[[str], object] = log.warning,
        changed: Callable[[], object] = lambda: None,
        recovered: Transfer = lambda app: None,
    ) -> None:
        """Start the thread.

        Args:
            app: The Celery application.
            report: Called with a line when the broker stops accepting messages, and when it accepts them again.
            changed: Called after `healthy` changed.
            recovered: Called every second while the broker accepts nothing, and first once it does.
        """
        self.app = app
        self.healthy = True
        self._report = report
        self._changed = changed
        self._recovered = recovered
        self._transfers: queue.Queue[Transfer | None] = queue.Queue(_MOST_WAITING)
        self._waiting: set[Transfer] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name="wtb-publisher", daemon=True)
        self._thread.start()

    def submit(self, transfer: Transfer) -> None:
        """Queue a call for the thread, unless it waits there already or too many do."""
        with self._lock:
            if transfer in self._waiting:
                return
            try:
                self._transfers.put_nowait(transfer)
            except queue.Full:
                return
            self._waiting.add(transfer)

    def close(self, patience_s: float) -> None:
        """Send what waits, for at most `patience_s` seconds."""
        try:
            self._transfers.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(patience_s)

    def _loop(self) -> None:
        while True:
            try:
                transfer = self._transfers.get(timeout=None if self.healthy else RETRY_S)
            except queue.Empty:
                transfer = self._recovered
            if transfer is None:
                return
            with self._lock:
                # Before the call: work that is published while it runs must be able to queue it again.
                self._waiting.discard(transfer)
            self._call(transfer)

    def _call(self, transfer: Transfer) -> None:
        was_healthy = self.healthy
        try:
            # Tasks that were published while the broker was away go first.
            if not was_healthy and transfer is not self._recovered:
                self._recovered(self.app)
            transfer(self.app)
            self.healthy = True
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the broker, work goes on
            self.healthy = False
            if was_healthy:
                self._report(f"the broker accepts no messages ({error}); they are sent again")
        if self.healthy != was_healthy:
            if self.healthy:
                self._report("the broker accepts messages again")
            self._changed()
