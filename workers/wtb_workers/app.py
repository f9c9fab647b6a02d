"""The Celery application. Its messages name tasks; the database says which executions a task has, and if it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from celery import Celery
from celery.app import amqp
from celery.loaders.app import AppLoader
from kombu import connection

from wtb.config.broker import PREFIX, UNNAMED, Broker, queue_key
from wtb.config.stack_file import broker_url
from wtb.core.errors import BrokerError, InputError
from wtb.store.database import open_database
from wtb.store.runs.maintenance import SCHEDULER_INTERVAL_S
from wtb.store.runs.publishing import cluster_of
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb_workers import messages
from wtb_workers.task_messages import SCHEDULER

ANSWER_S = 5.0  # for a broker that should be there
RETRY_S = 1.0  # Celery's own pause grows to 30 s, during which a worker would miss that the broker is back
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


class Loader(AppLoader):  # type: ignore[misc]
    """Imports what is installed. Celery's own puts the folder of the command first, whose `statistics.py` it finds."""

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
        raise InputError(f"--queues {names!r} names none; expected names such as default,gpu")
    return tuple(dict.fromkeys(DEFAULT_QUEUE if name == "default" else name for name in listed))


def make_app(url: str | None, *, answer_s: float = 15.0) -> Celery:
    """Create the application for a broker. answer_s: timeout in seconds for one answer of the broker."""
    app = Celery("wtb", broker=url, include=["wtb_workers.tasks"], set_as_current=False, amqp=AMQP, loader=Loader)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=PREFIX,
        task_routes=(_route,),
        broker_transport=f"{messages.__name__}:{messages.Transport.__name__}",
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
