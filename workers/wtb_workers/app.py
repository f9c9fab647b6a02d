"""The Celery application. Messages are wake-up notifications only; the database is the source of truth."""

from __future__ import annotations

from contextlib import closing

from celery import Celery

from wtb.config.broker import PREFIX, UNNAMED, Broker
from wtb.config.stack_file import broker_url
from wtb.core.errors import BrokerError, InputError
from wtb.store.runs.maintenance import SCHEDULER_INTERVAL_S
from wtb.store.runs.queue import DEFAULT_QUEUE
from wtb_workers.connections import AMQP

ANSWER_S = 5.0  # for a broker that should be there


def queue_names(names: str) -> tuple[str, ...]:
    """Parse a list of queues such as `default,gpu`; `default` becomes the empty string. Raises InputError."""
    listed = [name.strip() for name in names.split(",") if name.strip()]
    if not listed:
        raise InputError(f"--queues {names!r} names none; expected names such as default,gpu")
    return tuple(dict.fromkeys(DEFAULT_QUEUE if name == "default" else name for name in listed))


def make_app(url: str | None, *, answer_s: float = 15.0) -> Celery:
    """Create the application for a broker. answer_s: timeout in seconds for one answer of the broker."""
    app = Celery("wtb", broker=url, include=["wtb_workers.tasks"], set_as_current=False, amqp=AMQP)
    app.conf.update(
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=PREFIX,
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
        },
        worker_send_task_events=True,
        task_send_sent_event=True,
        worker_max_tasks_per_child=1000,
        worker_proc_alive_timeout=30.0,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        beat_schedule={"scheduler": {"task": "wtb.scheduler", "schedule": SCHEDULER_INTERVAL_S}},
    )
    return app


def reach(url: str | None) -> None:
    """Ping the broker. Raises BrokerError if it cannot be reached."""
    if not url:
        raise BrokerError(UNNAMED)
    with closing(Broker(url, ANSWER_S)) as broker:
        broker.ping()


app = make_app(broker_url())
