"""Checks of `wtb doctor` on workers: broker, live workers, waiting work, scheduler, clocks, versions, files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from wtb.config.broker import Broker, has_client
from wtb.config.distribution import pip_install
from wtb.core.documents.administration import CheckDocument
from wtb.core.errors import WTBError
from wtb.core.texts import plural
from wtb.core.version import __version__
from wtb.display.views.progress import crew, without_worker, worker_command
from wtb.hosting.diagnostics.finding import check
from wtb.store.database import Database
from wtb.store.files.locations import check_files, sharing, workspaces_of
from wtb.store.runs.maintenance import SCHEDULER_INTERVAL_S
from wtb.store.runs.queue import DEFAULT_QUEUE, demand
from wtb.store.telemetry import workers

if TYPE_CHECKING:
    from wtb.core.documents.sweeps import WorkerDocument


ROUNDS = 3  # of the scheduler, within which a reclaim must have happened
AGAIN_S = 0.5  # between two looks at what waits beside free slots
FAR_OFF_S = 1.0


def broker_checks(url: str) -> Iterator[CheckDocument]:
    """Whether the broker is there, answers, and takes the password."""
    if not has_client():
        yield check("broker", "the packages of workers are not installed", pip_install("workers"), ok=False)
        return
    try:
        broker = Broker(url)
    except WTBError as error:
        yield check("broker", str(error), "correct WTB_BROKER_URL", ok=False)
        return
    try:
        yield check("broker", f"{broker.url} answers in {broker.ping():.1f} ms", ok=True)
    except WTBError as error:
        fix = "start it, for example with `wtb up`, or correct WTB_BROKER_URL; meanwhile nothing that waits is started"
        yield check("broker", str(error), fix, ok=False)
    finally:
        broker.close()


def worker_checks(database: Database) -> Iterator[CheckDocument]:
    """Workers and what waits for them, by their rows in the database. Raises StoreError."""
    workers_seen = crew(database)
    pending = workers.waiting(database)
    yield from _workers(workers_seen)
    for queue in without_worker(pending, workers_seen):
        count = pending[DEFAULT_QUEUE if queue == "default" else queue]
        text = f"{plural(count, 'execution')} wait, and no worker takes from it"
        yield check(f"queue {queue}", text, f"start one: {worker_command(queue)}", ok=False)
    yield _scheduler(database, pending)
    yield _clocks(database, workers_seen)
    yield _versions(workers_seen)


def _workers(found: list[WorkerDocument]) -> Iterator[CheckDocument]:
    if not found:
        yield check("workers", "none", "start one: wtb worker", ok=False)
    for worker in found:
        slots = f"{worker['busy']:,} of {plural(worker['slots'], 'slot')} busy"
        queues = ", ".join(worker["queues"])
        text = f"{slots}, queues {queues}, seen {worker['seen_s']:.0f} s ago"
        yield check(f"worker {worker['name']}", text, ok=True)


def _scheduler(database: Database, pending: dict[str, int]) -> CheckDocument:
    """By what it leaves undone: itself it keeps no record."""
    fix = "no scheduler is running: start one with `wtb scheduler`"
    patience = ROUNDS * SCHEDULER_INTERVAL_S
    if lost := workers.left_behind(database, patience):
        return check("scheduler", f"{plural(lost, 'execution')} of dead workers were not reclaimed", fix, ok=False)
    overdue = _overdue(database, patience)
    if overdue:
        time.sleep(AGAIN_S)  # a slot may be free for a moment
        overdue &= _overdue(database, patience)
    if overdue:
        text = f"{plural(len(overdue), 'execution')} wait for longer than {patience:g} s although slots are free"
        return check("scheduler", text, fix, ok=False)
    return check("scheduler", "nothing waits for it" if not pending else "pending executions are published", ok=True)


def _overdue(database: Database, patience: float) -> set[str]:
    free = [queue for queue, wanted in demand(database).items() if wanted.free and wanted.pending]
    return workers.overdue(database, free, patience) if free else set()


def _clocks(database: Database, found: list[WorkerDocument]) -> CheckDocument:
    ahead = {"this machine": workers.clock_ahead(database)}
    ahead |= {worker["name"]: worker["clock_s"] for worker in found if worker["clock_s"] is not None}
    off = [f"{name} by {seconds:+.1f} s" for name, seconds in ahead.items() if abs(seconds) > FAR_OFF_S]
    if off:
        text = (
            f"off the database's: {', '.join(off)}; harmless, since leases use its clock, but times in logs are wrong"
        )
        return check("clocks", text, ok=True)
    return check("clocks", f"within {max(map(abs, ahead.values())):.2f} s of the database's", ok=True)


def _versions(found: list[WorkerDocument]) -> CheckDocument:
    others = [f"{worker['name']} has {worker['version']}" for worker in found if worker["version"] != __version__]
    if others:
        fix = f"install WTB {__version__} there, or theirs here, and start the workers again"
        return check("versions", f"{', '.join(others)}; here it is {__version__}", fix, ok=False)
    return check("versions", f"WTB {__version__} everywhere", ok=True)


def file_checks(database: Database) -> Iterator[CheckDocument]:
    """The directory that workers share for files."""
    try:
        shared = sharing()
        if shared is None:
            yield check("shared files", "none (WTB_FILES is not set): each machine keeps its own", ok=True)
            return
        check_files(database, workspaces_of(database))
        yield check("shared files", f"{shared.folder} can be written", ok=True)
    except WTBError as error:
        yield check("shared files", str(error), "mount the directory, or correct WTB_FILES", ok=False)
