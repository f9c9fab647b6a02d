"""Connections to the broker that are tried again every second, however long it is away.

Celery's own pause between two attempts grows to 30 s, for which a worker would stay deaf once the broker is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery.app import amqp
from kombu import connection

RETRY_S = 1.0
SAY_AGAIN_S = 60.0

OnError = Callable[[BaseException, float], object]


class Connection(connection.Connection):
    """A connection that `ensure_connection` makes."""

    def ensure_connection(self, errback: OnError | None = None, max_retries: int | None = None, **given: Any) -> Any:
        """Connect, as often as it takes. errback: called with the first failure, and once a minute."""
        pause = {"interval_start": RETRY_S, "interval_step": 0, "interval_max": RETRY_S}
        errback = errback and _now_and_then(errback)
        return super().ensure_connection(errback, max_retries, **{**given, **pause})  # type: ignore[no-untyped-call]


class AMQP(amqp.AMQP):  # type: ignore[misc]
    """What Celery makes its connections and messages with."""

    Connection = Connection

    def as_task_v2(self, *args: Any, **given: Any) -> Any:
        """Make the message of a task; its event `task-sent` has the name that monitors are to show, too.

        Celery gives that event the name of the function, and a monitor that hears it after `task-received`, as on a
        busy machine, renames the task to it.
        """
        message = super().as_task_v2(*args, **given)
        if message.sent_event and (shown := message.headers["shadow"]):
            message.sent_event["name"] = shown
        return message


def _now_and_then(errback: OnError) -> OnError:
    said = 0.0

    def on_error(error: BaseException, pause: float) -> None:
        nonlocal said
        if not said or time.monotonic() - said > SAY_AGAIN_S:
            said = time.monotonic()
            errback(error, pause)

    return on_error
