"""How Celery's processes come by a worker process of ours, and how the end of the worker reaches them.

With the pool `prefork` each child has its own; the parent opens no database. Two pipes lead from the parent to its
children: the end of the first asks them to stop, that of the second to be quick. Else there is one process, whose slots
are threads: their nodes run in processes of their own (`process`) or on those threads (`threads`).
"""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from celery import Celery, signals

from wtb.config.broker import queue_key
from wtb.core.errors import WTBError
from wtb.store.database import Database, database_url
from wtb_workers import messages, notifications
from wtb_workers.life import STOPPED, Worker
from wtb_workers.notifications import Notifier
from wtb_workers.process import WorkerProcess

PREFORK = "prefork"


class Hosting:
    """What this process knows of the worker that it is a part of."""

    app: Celery
    worker: Worker
    process: WorkerProcess | None = None
    pipes: tuple[tuple[int, int], ...] = ()
    asked = 0
    pid = 0  # of the worker


_here = Hosting()


def serve(app: Celery, worker: Worker) -> int:
    """Run a worker in this process until it is told to end. Returns its exit code."""
    _here.app, _here.worker, _here.pid = app, worker, os.getpid()
    _here.pipes = (os.pipe(), os.pipe())
    signals.worker_shutting_down.connect(_shutting_down, weak=False)
    if worker.pool != PREFORK:
        signals.worker_ready.connect(_begin, weak=False)
    else:
        signals.worker_process_init.connect(_begin_child, weak=False)
        signals.worker_process_shutdown.connect(_end, weak=False)
    messages.install()
    warnings.filterwarnings("ignore", "You're running the worker with superuser privileges")
    run = app.Worker(
        hostname=worker.name,
        pool=PREFORK if worker.pool == PREFORK else "threads",
        concurrency=worker.slots,
        queues=",".join(map(queue_key, worker.queues)),
        task_events=True,
        without_gossip=True,
        without_mingle=True,
        loglevel="WARNING",
        quiet=True,
    )
    try:
        run.start()
    finally:
        _end()
    return int(run.exitcode or 0)


def process() -> WorkerProcess:
    """The worker process that we are. Raises WTBError outside of a worker."""
    if _here.process is None:
        raise WTBError("this task runs in workers that `wtb worker` started")
    return _here.process


def database() -> Database:
    return process().database


def notify(rows: Iterable[Mapping[str, Any]]) -> None:
    notifications.notify(_here.app, rows)


def _begin(**_: Any) -> None:
    _here.process = WorkerProcess(database_url(), _here.worker, Notifier(_here.app))


def _begin_child(**_: Any) -> None:
    worker = _here.worker
    _here.worker = Worker(worker.name, worker.pool, 1, worker.queues)
    for _read, ours in _here.pipes:
        os.close(ours)
    _begin()
    threading.Thread(target=_listen, name="wtb-listen", daemon=True).start()


def _listen() -> None:
    """Wait for what the parent asks. Where it dies, this process does, too.

    At once, and without giving back what it holds: the node that it is in may be what killed the parent, which is
    counted where a lease runs out.
    """
    for place, (end, _) in enumerate(_here.pipes):
        os.read(end, 1)
        if os.getppid() != _here.pid:
            os.kill(os.getpid(), signal.SIGKILL)
        if _here.process is not None:
            _here.process.stop(STOPPED, quick=place > 0)


def _shutting_down(**_: Any) -> None:
    """Called on the first signal, within its handler; a second one is for us."""
    _ask()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _ask())


def _ask() -> None:
    if _here.asked == len(_here.pipes):
        return
    quick = _here.asked > 0
    os.close(_here.pipes[_here.asked][1])
    _here.asked += 1
    if _here.worker.pool != PREFORK:  # not in the handler: what it interrupts may hold a lock
        threading.Thread(target=_stop_here, args=(quick,), name="wtb-stop", daemon=True).start()


def _stop_here(quick: bool) -> None:
    if _here.process is not None:
        _here.process.stop(STOPPED, quick=quick)


def _end(**_: Any) -> None:
    ended, _here.process = _here.process, None
    if ended is not None:
        ended.close()
