"""Commands of workers: worker, tick."""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import Db, say
from wtb.sizes import MOST_SLOTS

if TYPE_CHECKING:
    from celery import Celery

    from wtb.store.database import Database

Broker = Annotated[
    str | None,
    typer.Option("--broker", metavar="URL", help="Broker \\[default: $WTB_BROKER_URL, else that of `wtb up` here]."),
]

TELLING_S = 60.0  # for the alerts of a single tick
COLLECT_S = 3600.0  # between two collections of what the policy of retention lets go


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: wtb worker  |  wtb worker --concurrency 8  |  "
        "wtb worker --pool threads --concurrency 200 --queues default,gpu"
    )(worker)
    app.command(epilog="Examples: wtb tick  |  wtb tick --once")(tick)


def worker(
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", "-c", min=1, max=MOST_SLOTS, help="Executions at a time \\[default: cores]."),
    ] = None,
    pool: Annotated[
        str,
        typer.Option("--pool", help="prefork: nodes in processes of their own; threads: many nodes that wait."),
    ] = "prefork",
    queues: Annotated[
        str, typer.Option("--queues", "-Q", metavar="A,B", help="Queues that nodes name, and `default`.")
    ] = "default",
    name: Annotated[str | None, typer.Option("--name", help="Its name \\[default: host and process].")] = None,
    broker: Broker = None,
    db: Db = None,
) -> None:
    """Run executions of submitted sweeps, until SIGTERM or Ctrl-C.

    Nodes that run then have the grace of their sweep; a second signal is quick. Nothing that was committed is lost.
    """
    from wtb.credentials import DATABASE_URL, keep
    from wtb.errors import InputError

    if pool not in ("prefork", "threads"):
        raise InputError(f"--pool {pool!r} is not known; expected prefork or threads")
    app = application(broker)
    from wtb_workers.app import queue_names

    names = queue_names(queues)
    database = shared_database(db)
    database.close()
    keep(DATABASE_URL, database.url.render_as_string(hide_password=False))

    from wtb_workers.app import reach
    from wtb_workers.hosting import serve
    from wtb_workers.life import Worker

    reach(app.conf.broker_url)
    slots = concurrency or os.cpu_count() or 1
    host = f"{name or f'wtb-{os.getpid()}'}@{socket.gethostname()}"
    made = Worker(host, pool, slots, names)
    say(f"worker {host}: {slots} slots ({pool}), queues {queues}; database {database.shown_url}")
    raise typer.Exit(serve(app, made))


def tick(
    every: Annotated[float | None, typer.Option("--every", min=0.05, help="Seconds between ticks \\[5].")] = None,
    once: Annotated[bool, typer.Option("--once", help="Tick once and say what was done, as JSON.")] = False,
    broker: Broker = None,
    db: Db = None,
) -> None:
    """Take back what dead workers held, end sweeps, carry out schedules, and ring for what waits. Run at least one.

    Several may run at once. Once an hour it also removes what the policy of retention lets go, as `wtb gc` does.
    """
    from wtb.cli.console import as_json, put

    app = application(broker)
    database = shared_database(db)
    from wtb.alerts import Alerts
    from wtb.store.tending import TICK_S
    from wtb_scheduler.fires import Fires
    from wtb_scheduler.tick import tick as do
    from wtb_workers.bells import ring

    if once:
        fires, alerts = Fires(database, say), Alerts(database)
        try:
            put(as_json(do(database, lambda rows: ring(app, rows), fires, alerts)))
        finally:
            alerts.finish(TELLING_S)
            fires.wait()
        return
    _keep_ticking(database, app, every or TICK_S)


def _keep_ticking(database: Database, app: Celery, every: float) -> None:
    import signal
    import threading

    from wtb.alerts import Alerts
    from wtb.errors import WTBError
    from wtb_scheduler.fires import Fires
    from wtb_scheduler.tick import tick as do
    from wtb_workers.bells import ring

    fires, alerts = Fires(database, say), Alerts(database)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    say(f"tick: every {every:g} s; database {database.shown_url}")
    said = ""
    collected = time.monotonic()
    while not ending.is_set():
        try:
            do(database, lambda rows: ring(app, rows), fires, alerts)
            if time.monotonic() - collected > COLLECT_S:
                collected = time.monotonic()
                _collect(database)
            now = ""
        except WTBError as error:
            now = str(error)
        if now != said:
            say(f"tick: {now or 'all is well again'}")
            said = now
        ending.wait(every)
    fires.end()


def _collect(database: Database) -> None:
    from wtb.collection import collect
    from wtb.homes import workspaces_of
    from wtb.retention import read_policy

    collect(database, workspaces_of(database).files, read_policy())


def application(broker: str | None) -> Celery:
    """The Celery application. Raises InputError where the packages are not installed."""
    from wtb.distribution import pip_install
    from wtb.errors import InputError
    from wtb.stack import broker_url

    try:
        from wtb_workers.app import make_app
    except ImportError as error:
        raise InputError(f"workers need more packages ({error}): {pip_install('workers')}") from error
    return make_app(broker_url(broker))


def shared_database(url: str | None, **options: Any) -> Database:
    """The database that workers share. Raises InputError where it is none that several machines can use."""
    from wtb.errors import InputError
    from wtb.store.database import Database, database_url

    database = Database(database_url(url))
    if database.is_sqlite:
        raise InputError(
            f"workers need PostgreSQL, and the database is {database.shown_url}: give one with --db or "
            f"WTB_DATABASE_URL, or start a stack here with `wtb up`; without workers there is `wtb run`"
        )
    database.prepare()
    return database
