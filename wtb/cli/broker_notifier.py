"""Wake-up notifications that commands send. A broker that is down never blocks what the database has accepted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from wtb.cli.admin.workers import application
from wtb.config import broker
from wtb.config.stack_file import broker_url
from wtb.core.errors import StoreError, WTBError, one_line
from wtb.store.runs import queue as store

if TYPE_CHECKING:
    from celery import Celery

    from wtb.store.database import Database

Rows = Sequence[Mapping[str, Any]]

ANSWER_S = 2.0


class BrokerNotifier:
    """Talks to the broker from a thread of its own, so that a broker that hangs does not block the command.

    Create it early: importing Celery takes a second.

    Args:
        url: As `--broker` gives it; None for the one of the environment or of the stack.

    Attributes:
        url: Of the broker; None if none is configured.
    """

    def __init__(self, url: str | None) -> None:
        self.url = broker_url(url)
        self._refusal: Exception | None = None
        self._problem: str | None = None
        self._loaded, self._answered, self._notified = (threading.Event() for _ in range(3))
        self._rows: queue.SimpleQueue[Rows] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="wtb-notifier", daemon=True).start()

    def check(self) -> None:
        """Check the configuration before work starts.

        Raises InputError if the URL is not that of a broker, or if the packages for workers are not installed.
        """
        self._loaded.wait()
        if self._refusal is not None:
            raise self._refusal

    def problem(self) -> str | None:
        """Why no notification can be sent; None if one can."""
        self._loaded.wait()
        if self._refusal is not None:
            return str(self._refusal)
        if not self._answered.wait(2 * ANSWER_S):
            return "the broker does not answer"
        return self._problem

    def notify(self, rows: Rows) -> str | None:
        """Send a notification for each row. Returns why that was not possible, else None."""
        if (problem := self.problem()) is not None or not rows:
            return problem
        self._rows.put(rows)
        return self._problem if self._notified.wait(2 * ANSWER_S) else "the broker does not answer"

    def notify_pending(self, database: Database) -> str | None:
        """Notify free slots of pending executions. Returns why that was not possible, else None; no work is lost."""
        try:
            return self.notify(store.pending_notifications(database))
        except StoreError as error:  # what was submitted is stored; only the list of notifications could not be read
            return str(error)

    def _work(self) -> None:
        try:
            app = self._load()
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            self._refusal = error
        self._loaded.set()
        if self._refusal is None:
            self._problem = self._reach(app)
            self._answered.set()
            if self._problem is None:
                self._problem = self._send(app, self._rows.get())
                self._notified.set()

    def _load(self) -> Celery:
        if self.url is not None:
            broker.Broker(self.url).close()
        application(None)
        from wtb_workers.app import make_app

        return make_app(self.url, answer_s=ANSWER_S)

    def _reach(self, app: Celery) -> str | None:
        """Connect ahead of time, so that sending is quick."""
        if self.url is None:
            return broker.UNNAMED
        try:
            with closing(broker.Broker(self.url, ANSWER_S)) as client:
                client.ping()  # gives up sooner than Celery, with a better message
            with app.producer_or_acquire() as producer:
                producer.channel.client.ping()
        except WTBError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - of redis, of kombu, of the socket: there is no common root
            return one_line(error)
        return None

    def _send(self, app: Celery, rows: Rows) -> str | None:
        from wtb_workers.notifications import notify

        try:
            notify(app, rows)
        except Exception as error:  # noqa: BLE001 - the same
            return f"the broker accepts no messages ({one_line(error)})"
        return None
