"""Connections to the broker that retry every second, however long the broker is down.

Celery's own pause between two attempts grows to 30 s, during which a worker would miss that the broker is back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery.app import amqp
from kombu import connection

RETRY_S = 1.0
REPORT_AGAIN_S = 60.0

OnError = Callable[[BaseException, float], object]


class Connection(connection.Connection):
    """A connection whose `ensure_connection` retries every second."""

    def ensure_connection(self, errback: OnError | None = None, max_retries: int | None = None, **given: Any) -> Any:
        """Connect, however many attempts it takes. errback: called on the first failure, then once a minute."""
        pause = {"interval_start": RETRY_S, "interval_step": 0, "interval_max": RETRY_S}
        errback = errback and _rate_limited(errback)
        return super().ensure_connection(errback, max_retries, **{**given, **pause})  # type: ignore[no-untyped-call]


class AMQP(amqp.AMQP):  # type: ignore[misc]
    """Creates the connections and messages of Celery."""

    Connection = Connection

    def as_task_v2(self, *args: Any, **given: Any) -> Any:
        """Make the message of a task, with the name that monitors should show in its event `task-sent` as well.

        Celery gives that event the name of the function. A monitor that receives it after `task-received`, as happens
        on a busy machine, would rename the task to that.
        """
        message = super().as_task_v2(*args, **given)
        if message.sent_event and (shown := message.headers["shadow"]):
            message.sent_event["name"] = shown
        return message


def _rate_limited(errback: OnError) -> OnError:
    called_at = 0.0

    def on_error(error: BaseException, pause: float) -> None:
        nonlocal called_at
        if not called_at or time.monotonic() - called_at > REPORT_AGAIN_S:
            called_at = time.monotonic()
            errback(error, pause)

    return on_error
