"""Foreign messages, which WTB did not send, are dropped and logged, and the worker goes on.

Whoever can write to the broker can put anything into a queue. kombu reads messages in the main loop of the worker, and
an error there ends the worker: for text that is not JSON, and for an object that is not the message it expects. Nothing
is lost with a message that is dropped: the scheduler sends tasks again that nobody claims. The setting
`broker_transport` names `Transport`.
"""

from __future__ import annotations

import binascii
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty
from typing import Any

from kombu.transport import redis, virtual

from wtb.config.broker import PREFIX
from wtb_workers.task_messages import EXECUTE, SCHEDULER, SCORE

log = logging.getLogger("wtb")

_TASKS = (EXECUTE, SCORE, SCHEDULER)
_SHOWN = 100
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
    _kept: Any = None

    @contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """A client of the channel's pool. kombu makes one for each ack, which costs more than the ack itself."""
        if client is None:
            if self._kept is None or self._kept.connection_pool is not self.pool:
                self._kept = self._create_client()  # type: ignore[no-untyped-call]
            client = self._kept
        yield client

    def _brpop_read(self, **options: Any) -> Any:
        self.connection.is_reading = True
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except _NOT_JSON as error:
            if not self.connection.is_reading:  # it was read; whoever got it raised this
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
    """Why something read from a queue is not a valid message; None if it is one."""
    if not isinstance(message, dict):
        return f"it is {type(message).__name__}, expected an object"
    for name, kind in (("properties", dict), ("headers", dict), ("body", str)):
        if not isinstance(message.get(name), kind):
            return f"{name} is {_shown(message.get(name))}, expected {kind.__name__}"
    properties = message["properties"]
    delivery = properties.get("delivery_info")
    if not (isinstance(delivery, dict) and {"exchange", "routing_key"} <= delivery.keys()):
        return f"delivery_info is {_shown(delivery)}, expected an exchange and a routing key"
    if not isinstance(properties.get("delivery_tag"), str):
        return f"delivery_tag is {_shown(properties.get('delivery_tag'))}, expected text"
    return _wrong_task(message) if of_tasks else None


def _wrong_task(message: Mapping[str, Any]) -> str | None:
    headers = message["headers"]
    if headers.get("task") not in _TASKS or not isinstance(headers.get("id"), str):
        return f"its task is {_shown(headers.get('task'))}, expected {' or '.join(_TASKS)} with an id"
    for name in ("eta", "expires", "compression"):
        if headers.get(name) is not None:
            return f"{name} is {_shown(headers[name])}, expected none"
    if headers.get("timelimit") not in (None, [None, None]):
        return f"timelimit is {_shown(headers['timelimit'])}, expected none"
    if message.get("content-type") != "application/json" or message.get("content-encoding") != "utf-8":
        return f"its content is {_shown(message.get('content-type'))}, expected JSON in UTF-8"
    if message["properties"].get("body_encoding") != "base64":
        return f"body_encoding is {_shown(message['properties'].get('body_encoding'))}, expected base64"
    try:
        body = json.loads(binascii.a2b_base64(message["body"]))
    except (ValueError, RecursionError):
        return "its body is not JSON"
    if not (isinstance(body, list) and [type(part) for part in body] == [list, dict, dict]):
        return f"its body is {_shown(body)}, expected arguments"
    return None


def _shown(value: Any) -> str:
    return f"{value!r:.{_SHOWN}}"
