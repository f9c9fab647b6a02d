"""The Celery application: messages only name tasks, the database holds their work, and foreign messages are dropped."""

from __future__ import annotations

import binascii
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from queue import Empty
from typing import Any

from celery import Celery
from celery.app import amqp
from celery.loaders.app import AppLoader
from kombu import connection
from kombu.transport import redis, virtual

from wtb.config.broker import PREFIX, UNNAMED, Broker, queue_key
from wtb.config.stack_file import broker_url
from wtb.core.errors import BrokerError, InputError
from wtb.store.database import open_database
from wtb.store.runs.maintenance import SCHEDULER_INTERVAL_S
from wtb.store.runs.publishing import cluster_of
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb_workers.task_messages import EXECUTE, SCHEDULER, SCORE

log = logging.getLogger("wtb")

_TASKS = (EXECUTE, SCORE, SCHEDULER)
_MAX_CHARS = 100
_NOT_JSON = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class Acks(redis.QoS):
    """The delivered messages of a channel. Acknowledging one whose connection was lost does nothing.

    kombu raises AttributeError for such a connection, as for a mistake of the program, and Celery ends the worker for
    it. Unacknowledged messages are not put back into the queue either: the scheduler sends tasks again.
    """

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        self._if_connected(delivery_tag, lambda: super(Acks, self).ack(delivery_tag))  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self._if_connected(delivery_tag, lambda: super(Acks, self).reject(delivery_tag, requeue))  # type: ignore[no-untyped-call]

    def _if_connected(self, delivery_tag: str, send: Callable[[], Any]) -> None:
        transport = self.channel.connection
        if self.channel.closed or transport is None or transport.client is None:
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]
        else:
            send()


class Channel(redis.Channel):
    """A channel that skips messages that are not JSON."""

    QoS = Acks
    _pooled_client: Any = None

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Yield a client of the channel's pool. kombu makes one for each ack, which costs more than the ack itself."""
        if client is None:
            if self._pooled_client is None or self._pooled_client.connection_pool is not self.pool:
                self._pooled_client = self._create_client()  # type: ignore[no-untyped-call]
            client = self._pooled_client
        yield client

    def _brpop_read(self, **options: Any) -> Any:
        # Tells an error of reading from one that `_deliver`, or the task behind it, has raised.
        self.connection.is_reading = True
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except _NOT_JSON as error:
            if not self.connection.is_reading:
                raise
            log.error("a message was dropped: it is not JSON (%s); it was not sent by WTB", type(error).__name__)
            raise Empty from None


class Transport(redis.Transport):
    """A transport that delivers well-formed messages only."""

    Channel = Channel
    is_reading = False

    def _deliver(self, message: Any, queue: str) -> None:
        self.is_reading = False
        problem = message_problem(message, of_tasks=queue == PREFIX or queue.startswith(f"{PREFIX}."))
        if problem is None:
            super()._deliver(message, queue)  # type: ignore[no-untyped-call]
        else:
            log.error("a message in queue %r was dropped: %s; it was not sent by WTB", queue, problem)


def message_problem(message: Any, *, of_tasks: bool) -> str | None:
    """Return the reason why something from a queue is no valid message; None if it is one."""
    if not isinstance(message, dict):
        return f"it is {type(message).__name__}, expected an object"
    for name, kind in (("properties", dict), ("headers", dict), ("body", str)):
        if not isinstance(message.get(name), kind):
            return f"{name} is {_describe(message.get(name))}, expected {kind.__name__}"
    properties = message["properties"]
    delivery = properties.get("delivery_info")
    if not (isinstance(delivery, dict) and {"exchange", "routing_key"} <= delivery.keys()):
        return f"delivery_info is {_describe(delivery)}, expected an exchange and a routing key"
    if not isinstance(properties.get("delivery_tag"), str):
        return f"delivery_tag is {_describe(properties.get('delivery_tag'))}, expected text"
    return _wrong_task(message) if of_tasks else None


def _wrong_task(message: Mapping[str, Any]) -> str | None:
    headers = message["headers"]
    if headers.get("task") not in _TASKS or not isinstance(headers.get("id"), str):
        return f"its task is {_describe(headers.get('task'))}, expected {' or '.join(_TASKS)} with an id"
    for name in ("eta", "expires", "compression"):
        if headers.get(name) is not None:
            return f"{name} is {_describe(headers[name])}, expected none"
    if headers.get("timelimit") not in (None, [None, None]):
        return f"timelimit is {_describe(headers['timelimit'])}, expected none"
    if message.get("content-type") != "application/json" or message.get("content-encoding") != "utf-8":
        return f"its content is {_describe(message.get('content-type'))}, expected JSON in UTF-8"
    if message["properties"].get("body_encoding") != "base64":
        return f"body_encoding is {_describe(message['properties'].get('body_encoding'))}, expected base64"
    try:
        body = json.loads(binascii.a2b_base64(message["body"]))
    except (ValueError, RecursionError):
        return "its body is not JSON"
    if not (isinstance(body, list) and [type(part) for part in body] == [list, dict, dict]):
        return f"its body is {_describe(body)}, expected arguments"
    return None


def _describe(content: Any) -> str:
    return f"{content!r:.{_MAX_CHARS}}"


ANSWER_S = 5.0  # for a broker that should be up
RETRY_S = 1.0  # Celery's own pause grows to 30 s, during which a worker would miss that the broker is back
REPORT_AGAIN_S = 60.0

OnError = Callable[[BaseException, float], object]


class Connection(connection.Connection):
    """A connection whose `ensure_connection` retries every second."""

    def ensure_connection(self, errback: OnError | None = None, max_retries: int | None = None, **options: Any) -> Any:
        """Connect, however many attempts it takes. `errback` is called on the first failure, then once a minute."""
        pause = {"interval_start": RETRY_S, "interval_step": 0, "interval_max": RETRY_S}
        errback = errback and _rate_limited(errback)
        return super().ensure_connection(errback, max_retries, **{**options, **pause})  # type: ignore[no-untyped-call]


class AMQP(amqp.AMQP):  # type: ignore[misc]
    """Creates the connections and messages of Celery."""

    Connection = Connection

    def as_task_v2(self, *args: Any, **options: Any) -> Any:
        """Make the message of a task, with the name that monitors should show in its event `task-sent` as well.

        Celery gives that event the name of the function. A monitor that receives it after `task-received`, as happens
        on a busy machine, would rename the task to that.
        """
        message = super().as_task_v2(*args, **options)
        if message.sent_event and (task_name := message.headers["shadow"]):
            message.sent_event["name"] = task_name
        return message


class Loader(AppLoader):  # type: ignore[misc]
    """Imports installed modules. Celery's own loader puts the command's folder first, which has a `statistics.py`."""

    def import_from_cwd(self, module: str, imp: Callable[..., Any] | None = None, package: str | None = None) -> Any:
        return self.import_module(module, package)


def _rate_limited(errback: OnError) -> OnError:
    called_at = 0.0

    def on_error(error: BaseException, pause: float) -> None:
        nonlocal called_at
        if not called_at or time.monotonic() - called_at > REPORT_AGAIN_S:
            called_at = time.monotonic()
            errback(error, pause)

    return on_error


def queue_names(names: str) -> tuple[str, ...]:
    """Parse a list of queues such as `default,gpu`; `default` becomes the empty string. Raises InputError."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed:
        raise InputError(f"--queues {names!r} is empty; expected names such as default,gpu")
    return tuple(dict.fromkeys(DEFAULT_QUEUE if name == "default" else name for name in listed))


def make_app(url: str | None, *, answer_s: float = 15.0) -> Celery:
    """Create the application for a broker. `answer_s` is the timeout in seconds for one answer of the broker."""
    # Not the current app of the process: a program that uses WTB may have a Celery application of its own.
    app = Celery("wtb", broker=url, include=["wtb_workers.tasks"], set_as_current=False, amqp=AMQP, loader=Loader)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=PREFIX,
        task_routes=(_route,),
        broker_transport=f"{__name__}:{Transport.__name__}",
        # Not for safety: a message that is lost or delivered twice changes nothing. But a message that was prefetched
        # and waits behind a long task would leave a free slot of another worker idle.
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_publish_retry=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "socket_timeout": answer_s,
            "socket_connect_timeout": min(answer_s, ANSWER_S),
            "socket_keepalive": True,
            "health_check_interval": 25,
            # Messages of tasks that run for longer come again, and are dropped; see docs/workers.md.
            "visibility_timeout": float(os.environ.get("WTB_VISIBILITY_TIMEOUT_S", "3600")),
        },
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        beat_schedule={"scheduler": {"task": SCHEDULER, "schedule": SCHEDULER_INTERVAL_S}},
    )
    return app


def _route(name: str, *_: object, **__: object) -> dict[str, str] | None:
    """Route the scheduler's task of Celery beat to the workers of the database that is configured."""
    if name != SCHEDULER:
        return None
    with closing(open_database()) as database:
        return {"queue": queue_key(DEFAULT_QUEUE, cluster_of(database))}


def reach(url: str | None) -> None:
    """Ping the broker. Raises BrokerError if it cannot be reached."""
    if not url:
        raise BrokerError(UNNAMED)
    with closing(Broker(url, ANSWER_S)) as broker:
        broker.ping()


app = make_app(broker_url())
