"""Ringing the broker for a command: never in the way of what the database has accepted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery import Celery

Rows = Sequence[Mapping[str, Any]]

ANSWER_S = 2.0


class Doorbell:
    """Reaches the broker from a thread of its own, so that one that hangs holds up nothing for long.

    Made early: importing Celery takes a second. url: None where no broker is named.
    """

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._refusal: Exception | None = None
        self._problem: str | None = None
        self._loaded, self._answered, self._rung = (threading.Event() for _ in range(3))
        self._rows: queue.SimpleQueue[Rows] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="wtb-doorbell", daemon=True).start()

    def check(self) -> None:
        """Whether there is anything to ring, before work starts.

        Raises InputError for a URL that is none of a broker, and where the packages are not installed.
        """
        self._loaded.wait()
        if self._refusal is not None:
            raise self._refusal

    def problem(self) -> str | None:
        """Why it cannot be rung; None where it can."""
        self._loaded.wait()
        if self._refusal is not None:
            return str(self._refusal)
        if not self._answered.wait(2 * ANSWER_S):
            return "the broker does not answer"
        return self._problem

    def ring(self, rows: Rows) -> str | None:
        """Send a message for each row. Returns why that was not possible, or None."""
        if (problem := self.problem()) is not None or not rows:
            return problem
        self._rows.put(rows)
        return self._problem if self._rung.wait(2 * ANSWER_S) else "the broker does not answer"

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
                self._rung.set()

    def _load(self) -> Celery:
        from wtb.cli.admin.workers import application
        from wtb.config.broker import Broker

        if self._url is not None:
            Broker(self._url).close()
        application(None)
        from wtb_workers.app import make_app

        return make_app(self._url, answer_s=ANSWER_S)

    def _reach(self, app: Celery) -> str | None:
        """Connect, so that ringing is quick."""
        from wtb.config.broker import UNNAMED, Broker
        from wtb.core.errors import WTBError

        if self._url is None:
            return UNNAMED
        try:
            with closing(Broker(self._url, ANSWER_S)) as asked:
                asked.ping()  # gives up sooner, and says more, than Celery
            with app.producer_or_acquire() as producer:
                producer.channel.client.ping()
        except WTBError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - of redis, of kombu, of the socket: there is no common root
            return _plain(error)
        return None

    def _send(self, app: Celery, rows: Rows) -> str | None:
        from wtb_workers.bells import ring

        try:
            ring(app, rows)
        except Exception as error:  # noqa: BLE001 - the same
            return f"the broker takes no message ({_plain(error)})"
        return None


def _plain(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
