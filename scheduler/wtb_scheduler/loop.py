"""The scheduler's loop: a round every few seconds, and a collection of garbage every hour."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from wtb.core.errors import WTBError
from wtb.core.serialization.user_modules import bar
from wtb.execution.runtime.alerts import Alerts
from wtb.operations.context import Context
from wtb.operations.housekeeping.garbage_collection import collect
from wtb.operations.schedules.children import Fires
from wtb.operations.telemetry.continuous import TraceExports
from wtb.store.database import Database
from wtb_scheduler.rounds import Deliver, run_round

COLLECT_S = 3600.0  # between two collections of what the retention policy allows to remove


def run_until(
    ending: threading.Event,
    database: Database,
    deliver: Deliver,
    every: float,
    report: Callable[[str], None],
    traces: TraceExports | None = None,
) -> None:
    """Run rounds until `ending` is set, then wait for the schedules that run.

    What is wrong, such as a database that is away, is reported when it changes; the next round tries again.

    Args:
        ending: Set by whoever stops the scheduler.
        database: The database that the workers share.
        deliver: Sends tasks, as `run_round` describes; it must not wait for a broker that hangs.
        every: Seconds between two rounds.
        report: Takes one line for people.
        traces: Sends traces of what has ended.
    """
    bar("the scheduler")  # children that carry out fires import it
    fires, alerts = Fires(database, report), Alerts(database)
    last_message = ""
    collected = time.monotonic()
    while not ending.is_set():
        if traces is not None:
            traces.look()
        try:
            run_round(database, deliver, fires, alerts, every)
            if time.monotonic() - collected > COLLECT_S:
                collected = time.monotonic()
                collect(Context(database))
            message = ""
        except WTBError as error:
            message = str(error)
        if message != last_message:
            report(f"scheduler: {message or 'all is well again'}")
            last_message = message
        ending.wait(every)
    fires.end()
    if traces is not None:
        traces.end(1.0)  # what is not sent by then is sent by whoever begins next
