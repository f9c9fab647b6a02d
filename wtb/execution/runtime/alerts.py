"""Alerts for people while a sweep runs: a node has stalled, a node asks, or a budget is used up.

An alert is an event that the sweep's `notify` subscribes to. It is sent at least once, by the process that runs the
sweep or by the scheduler, from a thread of its own, so that a slow recipient delays nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from wtb.core.errors import StoreError
from wtb.core.serialization.plain_json import iso
from wtb.core.values import Json
from wtb.store import alerts as store
from wtb.store.database import Database
from wtb.store.records import AlertRow, ListeningSweep

KINDS: Final[Mapping[str, Sequence[str]]] = {
    "stalled": ("execution.stalled",),
    "question": ("approval.asked",),
    "budget": ("budget.threshold", "budget.reached"),
    "paused": ("sweep.paused",),
    "failed": ("sweep.failed",),
    "completed": ("sweep.completed",),
}
_PAUSES_S = (10.0, 30.0, 90.0, 270.0)  # before it is tried again


class AlertedSweep(TypedDict):
    """The sweep of an event that is sent."""

    id: str
    name: str


class AlertMessage(TypedDict):
    """An event as it is sent. `url` is its page; None if WTB_PAGES_URL is not set."""

    url: str | None
    sweep: AlertedSweep
    execution: str | None
    event: str
    severity: str
    at: str
    text: str
    data: Mapping[str, Json]


class Alerts:
    """Sends the alerts of one sweep, or without `sweep_id` of all sweeps that workers run.

    They are sent one at a time, on a thread of its own.
    """

    def __init__(self, database: Database, sweep_id: str | None = None) -> None:
        self._database = database
        self._sweep_id = sweep_id
        self._requested = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def look(self) -> None:
        """Start a thread that sends pending alerts. Returns at once if one is still sending."""
        with self._lock:
            self._requested.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, name="wtb-alerts", daemon=True)
                self._thread.start()

    def finish(self, seconds: float) -> None:
        """Send the last alerts, for at most so long; the scheduler sends those that are left."""
        self.look()
        if (thread := self._thread) is not None:
            thread.join(seconds)

    def _send(self) -> None:
        """The body of the thread: send, and make way for another thread at the end, however it ends."""
        try:
            self._send_all()
        finally:
            with self._lock:
                # However this thread ended, the next look has to start another one.
                if self._thread is threading.current_thread():
                    self._thread = None

    def _send_all(self) -> None:
        """Send pending alerts, again if more were requested meanwhile."""
        while True:
            with self._lock:
                if not self._requested.is_set():
                    self._thread = None
                    return
                self._requested.clear()
            try:
                for sweep in store.listening(self._database, self._sweep_id):
                    send_alerts(self._database, sweep)
            except StoreError:
                continue


def send_alerts(database: Database, sweep: ListeningSweep) -> int:
    """Send the alerts that are due for a sweep (id, name, notify). Returns how many were sent. Raises StoreError."""
    # Slow to import, and few sweeps send alerts.
    from wtb.config.webhooks import NotificationError, send

    kinds_by_target = [[kind for word in target["on"] for kind in KINDS.get(word, ())] for target in sweep.notify]
    store.note(database, sweep.id, kinds_by_target)
    sent = 0
    while (alert := store.claim(database, sweep.id)) is not None:
        target = sweep.notify[alert.target]
        try:
            # The same key for each try, so that a recipient can drop an alert that arrives twice.
            send(target, _message(sweep, alert), f"{sweep.id}-{alert.event_id}-{alert.target}")
        except NotificationError as error:
            pause = _PAUSES_S[min(alert.tries, len(_PAUSES_S)) - 1]
            store.settle(database, alert, str(error), pause)
        else:
            store.settle(database, alert)
            sent += 1
    return sent


def _message(sweep: ListeningSweep, event: AlertRow) -> AlertMessage:
    from wtb.config.webhooks import page_url
    from wtb.core.documents.event_texts import event_text

    if event.kind == "approval.asked":
        url = page_url("inbox")
    elif event.execution_id is not None:
        url = page_url("executions", event.execution_id)
    else:
        url = page_url("sweeps", sweep.id)
    return {
        "url": url,
        "sweep": {"id": sweep.id, "name": sweep.name},
        "execution": event.execution_id,
        "event": event.kind,
        "severity": event.severity,
        "at": iso(event.at),
        "text": f"{sweep.name}: {event_text(event.kind, event.data)}",
        "data": event.data,
    }
