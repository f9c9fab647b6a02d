"""Runs Celery's worker in this process: its `WorkerProcess`, and its handling of signals.

Celery's pool is of threads: a slot is one of them, started when there is a task for it.
"""

from __future__ import annotations

import importlib
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery, signals
from celery.worker import control, state

from wtb.config.broker import queue_key
from wtb.config.stack_file import HOME
from wtb.core.errors import WTBError
from wtb.core.serialization.user_modules import bar
from wtb.hosting.servers.standby import turn
from wtb.store.database_url import database_url
from wtb_workers.process import WorkerProcess
from wtb_workers.session import STOPPED
from wtb_workers.slots import Worker
from wtb_workers.task_messages import Delivery

if TYPE_CHECKING:
    from wtb_scheduler.rounds import Round


class Hosting:
    """State of this process as a worker."""

    app: Celery
    worker: Worker
    process: WorkerProcess | None = None


_hosting = Hosting()
# Celery imports these only when a worker starts. A standby imports them ahead, so that it takes over at once.
_IMPORTED_BY_NAME = (
    *("celery.apps.worker", "celery.worker.consumer", "celery.worker.strategy", "celery.worker.components"),
    *("celery.concurrency.thread", "celery.app.trace", "celery.app.control", "celery.app.log", "celery.app.events"),
    *("celery.backends.base", "kombu.transport.redis", "wtb_workers.tasks"),
)


@contextmanager
def stand_by(name: str, say: Callable[[str], None]) -> Iterator[None]:
    """Import everything, then wait until no other worker of a name works in this folder; see `turn`."""
    for module in _IMPORTED_BY_NAME:
        importlib.import_module(module)
    with turn(Path.cwd() / HOME, name, say):
        yield


def serve(app: Celery, worker: Worker, cluster: str) -> int:
    """Run a worker of a cluster in this process until a signal stops it. Returns its exit code."""
    _hosting.app, _hosting.worker = app, worker
    signals.worker_shutting_down.connect(_shutting_down, weak=False)
    signals.worker_ready.connect(_begin, weak=False)
    signals.task_revoked.connect(_revoked, weak=False)
    # There is no result backend, in which a revoked task could be marked; Celery warns of that for each.
    logging.getLogger(control.__name__).addFilter(lambda record: "as revoked in backend" not in record.getMessage())
    if logging.getLogger().handlers:
        # With a receiver for this signal, Celery leaves logging as it is.
        signals.setup_logging.connect(_leave_logging, weak=False)
    warnings.filterwarnings("ignore", "You're running the worker with superuser privileges")
    run = app.Worker(
        hostname=worker.name,
        pool="threads",
        concurrency=worker.slots,
        queues=",".join(queue_key(queue, cluster) for queue in worker.queues),
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


def _leave_logging(**_: Any) -> None:
    """Leave logging as it is."""


def process() -> WorkerProcess:
    """The `WorkerProcess` of this process. Raises WTBError outside of a worker."""
    if _hosting.process is None:
        raise WTBError("this task runs in workers that `wtb worker` started")
    return _hosting.process


def run_scheduler_round() -> Round:
    """Run one round of the scheduler in this worker."""
    from wtb_scheduler.rounds import run_round

    database = process().database
    return run_round(database, Delivery(database, _hosting.app))


def _begin(**_: Any) -> None:
    bar("a worker")
    _hosting.process = WorkerProcess(database_url(), _hosting.worker, _hosting.app)
    # Celery's handler would wait for the slots, without ending the nodes that run in them.
    signal.signal(signal.SIGQUIT, _quit)


def _revoked(request: Any = None, **_: Any) -> None:
    """Called when the message of a revoked task was dropped."""
    if _hosting.process is not None and request is not None:
        _hosting.process.replace_task(str(request.id))


def _quit(*_: Any) -> None:
    """Stop without any grace, as a second signal does."""
    state.should_stop = 0
    _stop(quick=True)


def _shutting_down(**_: Any) -> None:
    """Called on the first signal, within its handler. Later signals are handled here."""
    _stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop(quick=True))


def _stop(*, quick: bool = False) -> None:
    # Not in the handler of a signal: what it interrupts may hold a lock.
    threading.Thread(target=_stop_process, args=(quick,), name="wtb-stop", daemon=True).start()


def _stop_process(quick: bool) -> None:
    if _hosting.process is not None:
        _hosting.process.stop(STOPPED, quick=quick)


def _end() -> None:
    ended, _hosting.process = _hosting.process, None
    if ended is not None:
        ended.close()
