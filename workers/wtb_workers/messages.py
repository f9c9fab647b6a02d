"""Messages that no WTB sent: they are dropped and logged, and the worker goes on.

Whoever can write to the broker can put anything into a queue. kombu reads what comes in the loop of the worker, and
ends the worker where that is no JSON, or no message as it expects one. Nothing is lost with a message that is dropped:
what was not claimed is rung for again.
"""

from __future__ import annotations

import binascii
import json
import logging
from collections.abc import Mapping
from queue import Empty
from typing import Any

from kombu import transport
from kombu.transport import redis
from kombu.utils import json as kombu_json

from wtb.config.broker import PREFIX
from wtb_workers.acks import Acks
from wtb_workers.bells import EXECUTE, TICK

log = logging.getLogger("wtb")

_TASKS = (EXECUTE, TICK)
_SHOWN = 100


class Channel(redis.Channel):
    """A channel that passes over what is no JSON."""

    QoS = Acks

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]
        except (Unreadable, UnicodeDecodeError) as error:
            log.error("a message was dropped: %s; it was not sent by WTB", error)
            raise Empty from None


class Transport(redis.Transport):
    """A transport that delivers what is a message."""

    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        problem = what_is_wrong(message, of_tasks=queue == PREFIX or queue.startswith(f"{PREFIX}."))
        if problem is None:
            super()._deliver(message, queue)  # type: ignore[no-untyped-call]
        else:
            log.error("a message in queue %r was dropped: %s; it was not sent by WTB", queue, problem)


class Unreadable(ValueError):
    """What came over the broker is no JSON."""


def install() -> None:
    """Have all connections of this process read messages so."""
    vars(redis)["loads"] = _loads
    transport.TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), f"{__name__}:Transport"))


def _loads(text: str) -> Any:
    try:
        return kombu_json.loads(text)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Unreadable(f"{_shown(text)} is no JSON ({type(error).__name__})") from None


def what_is_wrong(message: Any, *, of_tasks: bool) -> str | None:
    """Why something that was read from a queue is no message; None where it is one."""
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
        return "its body is no JSON"
    if not (isinstance(body, list) and [type(part) for part in body] == [list, dict, dict]):
        return f"its body is {_shown(body)}, expected arguments"
    return None


def _shown(found: Any) -> str:
    return f"{found!r:.{_SHOWN}}"
