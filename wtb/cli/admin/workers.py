"""Commands of workers: worker, scheduler."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import put_json, say
from wtb.cli.log_format import log_as_json
from wtb.config.credentials import DATABASE_URL, keep
from wtb.core.errors import BrokerAway, InputError, StoreAway
from wtb.core.units import MOST_SLOTS
from wtb.store import database as databases
from wtb.store.runs import maintenance, publishing
from wtb_workers import broker_publisher

if TYPE_CHECKING:
    from celery import Celery

    from wtb.hosting.metrics_exporter import Place
    from wtb.store.database import Database


Metrics = Annotated[
    str | None,
    typer.Option("--metrics", metavar="PLACE", help="Serve /metrics at a port of loopback, or at ADDRESS:PORT."),
]

ALERTS_S = 60.0  # for the alerts of a single round
RETRY_S = 1.0  # between attempts to reach a server that is away
SAY_AGAIN_S = 60.0


def worker(
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, max=MOST_SLOTS, help="Executions at a time \\[default: cores]."),
    ] = None,
    queues: Annotated[
        str, typer.Option("--queues", "-Q", metavar="A,B", help="Queues that nodes name, and `default`.")
    ] = "default",
    name: Annotated[str | None, typer.Option("--name", help="Its name \\[default: host and process].")] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait until no other worker of this --name runs in this folder.")
    ] = False,
    metrics: Metrics = None,
    broker: options.Broker = None,
    db: options.Db = None,
) -> None:
    """Run executions of submitted sweeps until you stop it.

    SIGTERM or Ctrl-C stops it: nodes that run then have the grace of their sweep; a second signal is quick. Nothing
    that was committed is lost.

    Start two workers with the same --name and --standby: one of them works, and the other one takes its place at once
    if it dies.

    See also: `wtb scheduler` recovers lost work; `wtb up` starts both.

    Examples: wtb worker  |  wtb worker --concurrency 8  |  wtb worker --concurrency 200 --queues default,gpu
    """
    if standby and name is None:
        raise InputError("--standby is given without --name; expected the name of both workers", argument="standby")
    log_as_json("worker")
    app = broker_publisher.application(broker)
    from wtb_workers.app import queue_names

    names, place = queue_names(queues), _place(metrics)
    database = postgres(db)
    # Forked processes take the URL from here, because they do not see --db.
    keep(DATABASE_URL, database.url.render_as_string(hide_password=False))

    from wtb_workers.app import reach
    from wtb_workers.hosting import serve, stand_by
    from wtb_workers.slots import Worker

    wait_for(database.prepare, lambda: reach(app.conf.broker_url))
    cluster = publishing.cluster_of(database)
    # A connection cannot be shared with processes that are forked later.
    database.close()
    slots = concurrency or os.cpu_count() or 1
    host = f"{name or f'wtb-{os.getpid()}'}@{socket.gethostname()}"
    instance = Worker(host, slots, names)
    with ExitStack() as leaving:
        if standby:
            leaving.enter_context(stand_by(host, say))
        if place is not None:
            _serve_metrics(place, postgres(db))
        say(f"worker {host}: {slots} slots, queues {queues}; database {database.shown_url}")
        raise typer.Exit(serve(app, instance, cluster))


def scheduler(
    interval: Annotated[
        float | None, typer.Option("--interval", min=0.05, help="Seconds between two rounds \\[5].")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run one round and print what was done as JSON.")] = False,
    metrics: Metrics = None,
    broker: options.Broker = None,
    db: options.Db = None,
) -> None:
    """Run the scheduler: recover lost work, and start schedules.

    Every few seconds it reclaims executions of dead workers, ends sweeps, runs schedules, and publishes pending work
    as tasks. Run at least one; several may run at once. Once an hour it also removes what the retention policy
    allows, as `wtb admin gc` does.

    See also: `wtb schedule run-due` starts schedules alone, from a line of crontab.

    Examples: wtb scheduler  |  wtb scheduler --once
    """
    app = broker_publisher.application(broker)
    if not once:
        log_as_json("scheduler")
        _run_scheduler(postgres(db), app, interval, _place(metrics))
        return
    database = shared_database(db)
    from wtb.execution.runtime.alerts import Alerts
    from wtb.features.schedules.children import Fires
    from wtb_scheduler.rounds import run_round
    from wtb_workers.task_messages import Delivery

    fires, alerts = Fires(database, say), Alerts(database)
    try:
        put_json(run_round(database, Delivery(database, app), fires, alerts))
    finally:
        # Alerts are sent by a thread and fires run in child processes, so the command waits for both.
        alerts.finish(ALERTS_S)
        fires.wait()


def _run_scheduler(database: Database, app: Celery, every: float | None, place: Place | None) -> None:
    from wtb.features.telemetry import operations
    from wtb.features.telemetry.collector import read_telemetry
    from wtb_scheduler.loop import run_until
    from wtb_workers.task_messages import Delivery, TaskSender

    settings = read_telemetry()

    def report(text: str) -> None:
        say(f"scheduler: {text}")

    every = every or maintenance.SCHEDULER_INTERVAL_S
    ending = threading.Event()
    # A signal only sets the flag, so that a round which has begun is finished.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    if place is not None:
        _serve_metrics(place, database, whole=True)
    say(f"scheduler: every {every:g} s; database {database.shown_url}")
    traces = None
    if settings is not None:
        say(f"traces: to {settings.endpoint}")
        traces = operations.TraceExports(database, settings, report)
    if wait_for(database.prepare, ending=ending):
        sender, delivery = TaskSender(app, report=report), Delivery(database, app)

        def deliver(tasks: Sequence[publishing.Task], retried: Mapping[str, str]) -> None:
            # By a thread, so that a broker that hangs does not hold up a round.
            sender.submit(lambda app: delivery(tasks, retried))

        run_until(ending, database, deliver, every, say, traces)


def _place(metrics: str | None) -> Place | None:
    if metrics is None:
        return None
    from wtb.hosting.metrics_exporter import parse_place

    return parse_place(metrics)


def _serve_metrics(place: Place, database: Database, *, whole: bool = False) -> None:
    """Serve the metrics of this process. whole: those of the database, too."""
    from prometheus_client.registry import Collector

    from wtb.hosting.metrics import DatabaseMetrics, ProcessMetrics, Tallies, exposition
    from wtb.hosting.metrics_exporter import Exporter

    collectors: list[Collector] = [ProcessMetrics(database=database)]
    if whole:
        collectors.append(DatabaseMetrics(database, Tallies()))
    exporter = Exporter(place, lambda accept: exposition(collectors, accept))
    say(f"metrics: http://{place.url_host}:{exporter.port}/metrics")


def wait_for(*reach: Callable[[], object], ending: threading.Event | None = None) -> bool:
    """Wait until servers that are away are back, as parts do that run already. Returns whether they are: not where
    `ending` was set before.

    reach: each checks one of them. Problems are printed when they change, and once a minute.
    """
    ending = ending or threading.Event()
    last_message, said_at = "", 0.0
    waiting = list(reach)
    while waiting and not ending.is_set():
        try:
            waiting[0]()
            del waiting[0]
        except (StoreAway, BrokerAway) as error:
            if str(error) != last_message or time.monotonic() - said_at > SAY_AGAIN_S:
                last_message, said_at = str(error), time.monotonic()
                say(f"waiting for a server: {last_message}")
            ending.wait(RETRY_S)
    if last_message and not waiting:
        say("the servers are there")
    return not waiting


def postgres(url: str | None) -> Database:
    """The database that workers share; it may be away. Raises InputError where it is none that machines can share."""
    database = databases.open_database(url)
    databases.check_shared(database)
    return database


def shared_database(url: str | None) -> Database:
    """Return the database of `postgres` at the right version. Raises StoreError if it is out of reach."""
    database = postgres(url)
    database.prepare()
    return database
