"""Wake-up notifications: messages that tell free slots about executions that they may claim."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterable

from celery import Celery

from wtb.config.broker import queue_key
from wtb.store.runs.queue import Notification

log = logging.getLogger("wtb")

EXECUTE = "wtb.execute"
SCHEDULER = "wtb.scheduler"
MAX_REASON_CHARS = 2000
MAX_PENDING = 1000  # notifications; there are hardly more slots than that to wake


def notify(app: Celery, rows: Iterable[Notification]) -> None:
    """Send a message for each execution: its id, and a description for people.

    One with `failed` (the reason) reports an execution that failed outside of a task; the message only makes the
    failure visible in the monitor.

    Raises whatever the client of the broker raises.
    """
    with app.producer_or_acquire() as producer:
        for row in rows:
            choices = " ".join(f"{node}={variant}" for node, variant in row.choices.items())
            fields = {"sweep": row.sweep, "case": row.case, "choices": choices}
            if row.failed:
                fields["failed"] = row.failed[:MAX_REASON_CHARS]
            app.send_task(
                EXECUTE,
                args=[row.execution],
                kwargs=fields,
                queue=queue_key(row.queue),
                producer=producer,
                retry=False,
                # What a monitor shows as its name, arguments and keyword arguments.
                shadow=row.sweep,
                argsrepr=row.case,
                kwargsrepr=f"{choices} execution={row.execution}".strip(),
            )


class Notifier:
    """Sends notifications from a thread of its own, so that a broker that hangs does not hold up work.

    Notifications that cannot be sent are dropped: the scheduler sends new ones for executions that are still pending.

    healthy: whether the last notification was sent.
    report: called with a message when the broker stops accepting messages, and when it accepts them again.
    """

    def __init__(self, app: Celery, report: Callable[[str], object] = log.warning) -> None:
        self._app = app
        self._report = report
        self._rows: queue.Queue[Notification | None] = queue.Queue(MAX_PENDING)
        self.healthy = True
        self._thread = threading.Thread(target=self._loop, name="wtb-notifier", daemon=True)
        self._thread.start()

    def notify(self, rows: Iterable[Notification]) -> None:
        for row in rows:
            try:
                self._rows.put_nowait(row)
            except queue.Full:
                return

    def notify_if_idle(self, rows: Iterable[Notification]) -> None:
        """Send notifications unless earlier ones are still queued: for callers that will repeat them anyway."""
        if self._rows.empty():
            self.notify(rows)

    def close(self, patience_s: float) -> None:
        """Send what is still queued, for at most `patience_s` seconds."""
        try:
            self._rows.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(patience_s)

    def _loop(self) -> None:
        while (row := self._rows.get()) is not None:
            try:
                notify(self._app, [row])
                if not self.healthy:
                    self._report("the broker accepts messages again")
                self.healthy = True
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the broker, work goes on
                if self.healthy:
                    self._report(f"the broker accepts no messages ({error}); the scheduler will send them again")
                self.healthy = False
