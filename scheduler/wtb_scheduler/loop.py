"""The scheduler's loop: a round every few seconds, and beside it the upkeep and an hourly collection of garbage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from wtb.core.errors import WTBError
from wtb.core.serialization.user_modules import bar
from wtb.execution.runtime.alerts import Alerts
from wtb.features.schedules.children import Fires
from wtb.features.telemetry.operations import TraceExports
from wtb.operations.context import Context
from wtb.operations.garbage_collection import collect
from wtb.store.database import Database
from wtb_scheduler.rounds import Deliver, keep_up, recover_and_publish

COLLECT_S = 3600.0  # between two collections of garbage by the retention policy


def run_until(
    ending: threading.Event,
    database: Database,
    deliver: Deliver,
    every: float,
    report: Callable[[str], None],
    traces: TraceExports | None = None,
) -> None:
    """Run rounds until `ending` is set, then wait for the upkeep and the schedules that run.

    A problem, such as a database that is away, is reported when it changes. The next round tries again.

    Args:
        ending: Set to stop the scheduler.
        database: The database that the workers share.
        deliver: Sends tasks, as `run_round` describes; it must not wait for a broker that hangs.
        every: Seconds between two rounds.
        report: Called with one line for people.
        traces: Sends traces of ended executions.
    """
    # User code is imported only by the children that run schedules.
    bar("the scheduler")
    fires, alerts = Fires(database, report), Alerts(database)
    last_message = ""
    with ThreadPoolExecutor(1, "wtb-upkeep") as thread:
        upkeep = _Upkeep(thread, database)
        while not ending.is_set():
            if traces is not None:
                traces.look()
            failure = _failure(lambda: recover_and_publish(database, deliver, fires, alerts, every))
            upkeep.start_if_idle()
            message = failure or upkeep.failure
            if message != last_message:
                report(f"scheduler: {message or 'all is well again'}")
                last_message = message
            ending.wait(every)
    fires.end()
    if traces is not None:
        # Traces that are not sent by then are sent by the next scheduler.
        traces.end(1.0)


class _Upkeep:
    """The upkeep of sweeps on a thread of its own, so that no round waits for the matrix of a large sweep.

    `failure` is the message of its last failure; empty if it ended well.
    """

    def __init__(self, thread: ThreadPoolExecutor, database: Database) -> None:
        self._thread = thread
        self._database = database
        self._collected = time.monotonic()
        self._running: Future[None] | None = None
        self.failure = ""

    def start_if_idle(self) -> None:
        """Start the next upkeep if the last one has ended. Raises its error, unless that is a WTBError."""
        if self._running is not None:
            if not self._running.done():
                return
            self.failure = _failure(self._running.result)
        self._running = self._thread.submit(self._keep_up)

    def _keep_up(self) -> None:
        keep_up(self._database)
        if time.monotonic() - self._collected > COLLECT_S:
            self._collected = time.monotonic()
            collect(Context(self._database))


def _failure(step: Callable[[], object]) -> str:
    try:
        step()
    except WTBError as error:
        return str(error)
    return ""
