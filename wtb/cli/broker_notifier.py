"""Wake-up notifications that commands send. A broker that is down never blocks what the database has accepted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from wtb.config.broker import UNNAMED, Broker
from wtb.core.errors import WTBError, one_line

if TYPE_CHECKING:
    from celery import Celery

Rows = Sequence[Mapping[str, Any]]

ANSWER_S = 2.0


class BrokerNotifier:
    """Talks to the broker from a thread of its own, so that a broker that hangs does not hold up the command.

    Create it early: importing Celery takes a second. url: None if no broker is configured.
    """

    def __init__(self, url: str | None) -> None:
        self._url = url
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
        from wtb.cli.admin.workers import application

        if self._url is not None:
            Broker(self._url).close()
        application(None)
        from wtb_workers.app import make_app

        return make_app(self._url, answer_s=ANSWER_S)

    def _reach(self, app: Celery) -> str | None:
        """Connect ahead of time, so that sending is quick."""
        if self._url is None:
            return UNNAMED
        try:
            with closing(Broker(self._url, ANSWER_S)) as client:
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
