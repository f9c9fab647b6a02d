"""Publishing by operations. A broker that is down never blocks an operation that the database has accepted."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from wtb.config import broker, distribution
from wtb.config.stack_file import broker_url
from wtb.core.errors import InputError, StoreError, WTBError, one_line
from wtb.store.files import system
from wtb.store.runs.publishing import cluster_of, publish

if TYPE_CHECKING:
    from celery import Celery

    from wtb.store.database import Database

_Send = Callable[["Celery"], str | None]
_Request = tuple[_Send, queue.SimpleQueue[str | None]]

ANSWER_S = 2.0
RETRY_S = 1.0  # after which a broker that was out of reach is tried again
CLOSED = "the publisher is closed"
SILENT = "the broker does not answer"


def application(url: str | None, *, answer_s: float | None = None) -> Celery:
    """Make the Celery application. Celery is imported here, because `wtb_workers` is installed without it.

    Args:
        url: The URL of the broker; None for the one of the environment or of the stack.
        answer_s: Timeout in seconds for one answer of the broker.

    Raises:
        InputError: If the packages for workers are not installed, or the system cannot run them.
    """
    system.check_system()
    try:
        from wtb_workers.app import make_app
    except ImportError as error:
        raise InputError(f"workers need more packages ({error}): {distribution.pip_install('workers')}") from error
    return make_app(broker_url(url)) if answer_s is None else make_app(broker_url(url), answer_s=answer_s)


class BrokerPublisher:
    """Talks to the broker from a thread of its own, so that a broker that hangs does not block the caller.

    Create it early: importing Celery takes a second. Threads may share it. A broker that was out of reach is tried
    again with the next message.

    Args:
        url: The value of `--broker`; None for the broker of the environment or of the stack.

    Attributes:
        url: The URL of the broker; None if none is configured.
    """

    def __init__(self, url: str | None) -> None:
        self.url = broker_url(url)
        self._refusal: Exception | None = None
        self._problem: str | None = None
        self._loaded, self._answered = threading.Event(), threading.Event()
        self._tried_at = 0.0
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # nothing is requested after it was closed
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="wtb-publisher", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check the configuration before work starts.

        Raises InputError if the URL is not that of a broker, or if the packages for workers are not installed.
        """
        self._loaded.wait()
        if self._refusal is not None:
            raise self._refusal

    def problem(self) -> str | None:
        """Return the reason why no message can be sent; None if one can."""
        self._loaded.wait()
        if self._refusal is not None:
            return str(self._refusal)
        return self._problem if self._answered.wait(2 * ANSWER_S) else SILENT

    def publish_pending(self, database: Database) -> str | None:
        """Publish pending executions and send their tasks.

        Returns the reason for a failure, else None. No work is lost: workers and the scheduler publish, too.
        """

        def publish_and_send(app: Celery) -> str | None:
            from wtb_workers.task_messages import send

            try:
                tasks, cluster = publish(database), cluster_of(database)
            except StoreError as error:
                return str(error)
            send(app, cluster, tasks)
            return None

        return self._call(publish_and_send)

    def revoke(self, task_ids: Sequence[str]) -> str | None:
        """Revoke tasks, so that workers drop their messages. Returns the reason for a failure, else None."""
        if not task_ids:
            return None
        return self._call(lambda app: app.control.revoke(list(task_ids)))

    def _call(self, send: _Send) -> str | None:
        """Send something on the thread. Returns the reason for a failure, else None."""
        self._loaded.wait()
        if self._refusal is not None:
            return str(self._refusal)
        if not self._answered.wait(2 * ANSWER_S):
            return SILENT
        reply: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with self._lock:
            if self._closed:
                return CLOSED
            self._requests.put((send, reply))
        try:
            return reply.get(timeout=2 * ANSWER_S)
        except queue.Empty:
            return SILENT

    def close(self) -> None:
        """End its thread after the requests so far. Nothing more is sent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._requests.put(None)
        self._thread.join(2 * ANSWER_S)

    def _work(self) -> None:
        try:
            app = self._load()
        except Exception as error:  # noqa: BLE001 - raised again where it is asked for
            self._refusal = error
        self._loaded.set()
        if self._refusal is None:
            self._try(app)
            self._answered.set()
            while (request := self._requests.get()) is not None:
                send, reply = request
                if self._problem is not None and time.monotonic() - self._tried_at >= RETRY_S:
                    self._try(app)
                reply.put(self._problem or _sent(app, send))
            # Only at the end, because all applications of the process share the pool of connections to this broker.
            app.close()

    def _try(self, app: Celery) -> None:
        self._problem = self._reach(app)
        self._tried_at = time.monotonic()

    def _load(self) -> Celery:
        if self.url is not None:
            broker.Broker(self.url).close()
        return application(self.url, answer_s=ANSWER_S)

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


def _sent(app: Celery, send: _Send) -> str | None:
    try:
        return send(app)
    except Exception as error:  # noqa: BLE001 - of redis, of kombu, of the socket: there is no common root
        return f"the broker accepts no messages ({one_line(error)})"
