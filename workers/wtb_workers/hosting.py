"""How Celery's processes get their `WorkerProcess`, and how they learn that the worker is to stop.

With the pool `prefork` each child has its own; the parent opens no database. Two pipes lead from the parent to its
children: closing the first asks them to stop, closing the second asks them to stop at once. With the other pools there
is one process, whose slots are threads: nodes run in child processes (`process`) or on those threads (`threads`).
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
from wtb_workers.notifications import Notifier
from wtb_workers.process import WorkerProcess
from wtb_workers.session import STOPPED
from wtb_workers.slots import Worker

PREFORK = "prefork"


class Hosting:
    """State of this process as a part of a worker. requests: how often it was asked to stop."""

    app: Celery
    worker: Worker
    process: WorkerProcess | None = None
    pipes: tuple[tuple[int, int], ...] = ()
    requests = 0
    pid = 0  # of the worker


_here = Hosting()


def serve(app: Celery, worker: Worker) -> int:
    """Run a worker in this process until it is asked to stop. Returns its exit code."""
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
    """The `WorkerProcess` of this process. Raises WTBError outside of a worker."""
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
    """Wait for requests of the parent. If the parent dies, this process dies, too.

    It does so at once, without releasing its leases: the node that it runs may be what killed the parent, and that is
    counted when a lease runs out.
    """
    for place, (end, _) in enumerate(_here.pipes):
        os.read(end, 1)
        if os.getppid() != _here.pid:
            os.kill(os.getpid(), signal.SIGKILL)
        if _here.process is not None:
            _here.process.stop(STOPPED, quick=place > 0)


def _shutting_down(**_: Any) -> None:
    """Called on the first signal, within its handler. Later signals are handled here."""
    _ask()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _ask())


def _ask() -> None:
    if _here.requests == len(_here.pipes):
        return
    quick = _here.requests > 0
    os.close(_here.pipes[_here.requests][1])
    _here.requests += 1
    if _here.worker.pool != PREFORK:  # not in the handler: what it interrupts may hold a lock
        threading.Thread(target=_stop_here, args=(quick,), name="wtb-stop", daemon=True).start()


def _stop_here(quick: bool) -> None:
    if _here.process is not None:
        _here.process.stop(STOPPED, quick=quick)


def _end(**_: Any) -> None:
    ended, _here.process = _here.process, None
    if ended is not None:
        ended.close()
