"""The scheduler's maintenance loop, one round every few seconds.

A round reclaims executions of dead workers, ends sweeps that have nothing left to run, runs schedules, and publishes
pending executions as tasks. The upkeep keeps matrices up to date, and removes some rows of sweeps that were deleted.
Several schedulers may run at once, and any of them may be killed at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from wtb.analysis.sweep_ends import complete, freeze, stop_where_known
from wtb.core.errors import BrokerError, ConflictError
from wtb.core.stop import WALL
from wtb.execution.runtime.alerts import Alerts
from wtb.features.schedules.children import Fires
from wtb.store.control import approvals, row_cells
from wtb.store.database import Database
from wtb.store.housekeeping.deletion import remove_hidden
from wtb.store.read import tallies
from wtb.store.records import OpenSweep
from wtb.store.runs import leases, maintenance, publishing
from wtb.store.runs.publishing import Task
from wtb.store.tables.sweeps import SweepRow

Deliver = Callable[[Sequence[Task], Mapping[str, str]], object]


class Round(TypedDict):
    """Counts of a round. `published` includes tasks that are sent again."""

    taken_back: int
    set_aside: int
    finished: int
    paused: int
    published: int


ROUNDS_TO_CLAIM = 2  # after which a task that was not claimed is sent again
RECLAIMED = "its worker died; other tasks go on with its work"
REMOVAL_S = 1.0  # of an upkeep, for rows of sweeps that were deleted
TALLY_S = 1.0  # of an upkeep, for the tallies of one sweep


def run_round(
    database: Database,
    deliver: Deliver,
    fires: Fires | None = None,
    alerts: Alerts | None = None,
    every_s: float = maintenance.SCHEDULER_INTERVAL_S,
) -> Round:
    """Run one round of maintenance, with the upkeep that may take long. Returns counts of what was done.

    Args:
        database: The database that the workers share.
        deliver: Sends tasks, and reports retried ones to monitors, with the reason.
        fires: Runs schedules.
        alerts: Sends the alerts of sweeps.
        every_s: Seconds between two rounds.

    Raises StoreError if the database is unreachable; BrokerError if the broker is, after everything else was done.
    """
    try:
        counts = recover_and_publish(database, deliver, fires, alerts, every_s)
    except BrokerError:
        keep_up(database)
        raise
    return {**counts, "finished": counts["finished"] + keep_up(database)}


def recover_and_publish(
    database: Database, deliver: Deliver, fires: Fires | None, alerts: Alerts | None, every_s: float
) -> Round:
    """Do the urgent part: reclaim, end sweeps, run schedules, and publish. Arguments as of `run_round`."""
    maintenance.end_silent_sessions(database)
    # Before publishing, so that reclaimed executions get tasks in the same round.
    lost = maintenance.reclaim(database)
    given_up = [row for row in lost if row.losses >= maintenance.SET_ASIDE_LOSSES]
    for row in given_up:
        maintenance.set_aside(database, row)
    maintenance.forget_dead_slots(database)
    approvals.expire(database)
    for sweep_id in row_cells.open_with_deferred(database):
        row_cells.begin_deferred(database, sweep_id)
    finished = paused = 0
    for sweep in maintenance.open_sweeps(database):
        if _is_overdue(sweep):
            reason = f"{WALL} = {sweep.spec['limits']['wall']:g} s"
            paused += leases.pause(database, sweep.id, reason, by="scheduler")
        elif not sweep.unfinished and sweep.status == "running":
            finished += complete(database, sweep.id)
    if fires is not None:
        fires.look()
    if alerts is not None:
        alerts.look()
    tasks = [*publishing.publish_again(database, ROUNDS_TO_CLAIM * every_s), *publishing.publish(database)]
    try:
        # Last, because a broker that is down must not keep the rest of the round from happening.
        deliver(tasks, {row.task_id: RECLAIMED for row in lost if row.task_id is not None})
    except Exception as error:
        raise BrokerError(f"the broker accepts no messages: {error}") from error
    return {
        "taken_back": len(lost),
        "set_aside": len(given_up),
        "finished": finished,
        "paused": paused,
        "published": len(tasks),
    }


def keep_up(database: Database) -> int:
    """Tally sweeps, end those with a clear result, store matrices of ended ones, and remove rows of deleted ones.

    A matrix of a million cells takes minutes, so the scheduler does this beside its rounds.

    Returns the number of sweeps that it ended.
    """
    finished = 0
    for sweep in maintenance.open_sweeps(database):
        if sweep.unfinished and not _is_overdue(sweep):
            tallies.tally(database, sweep.id, within_s=TALLY_S)
            finished += _is_known(database, sweep)
    for sweep_id in maintenance.unfrozen(database):
        freeze(database, sweep_id)
    end = time.monotonic() + REMOVAL_S
    remove_hidden(database, lambda: time.monotonic() > end)
    return finished


def _is_known(database: Database, sweep: SweepRow) -> bool:
    """End a sweep whose stopping rule is fulfilled. Returns True if this call ended it."""
    try:
        return sweep.status == "running" and stop_where_known(database, sweep) is not None
    except ConflictError:  # somebody was quicker
        return False


def _is_overdue(sweep: OpenSweep) -> bool:
    wall = sweep.spec["limits"]["wall"]
    return wall is not None and sweep.running_s is not None and sweep.running_s > wall
