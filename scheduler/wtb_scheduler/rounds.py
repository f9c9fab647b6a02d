"""The scheduler's maintenance loop, one round every few seconds.

A round reclaims executions of dead workers, ends sweeps that have nothing left to run, fires schedules, publishes
pending executions as tasks, keeps matrices up to date, and removes some rows of sweeps that were deleted. Several
schedulers may run at once, and any of them may be killed at any moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from wtb.analysis.early_stop import stop_where_known
from wtb.analysis.finalize import complete, freeze
from wtb.core.errors import BrokerError, ConflictError
from wtb.core.stop import WALL
from wtb.execution.runtime.alerts import Alerts
from wtb.operations.schedules.children import Fires
from wtb.store.control import approvals
from wtb.store.database import Database
from wtb.store.growth import deferred
from wtb.store.housekeeping.deletion import remove_hidden
from wtb.store.read import tallies
from wtb.store.rows.sweeps import OpenSweep
from wtb.store.runs import leases, maintenance, publishing
from wtb.store.runs.task_labels import Task
from wtb.store.tables.sweeps import SweepRow

Deliver = Callable[[Sequence[Task], Mapping[str, str]], object]


class Round(TypedDict):
    """What a round has done: how many executions, sweeps or tasks. published: tasks, those sent again included."""

    taken_back: int
    set_aside: int
    finished: int
    paused: int
    published: int


ROUNDS_TO_CLAIM = 2  # after which a task that was not claimed is sent again
TAKEN_OVER = "its worker died; other tasks go on with its work"
REMOVAL_S = 1.0  # of a round, for rows of sweeps that were deleted
TALLY_S = 1.0  # of a round, for the tallies of one sweep


def run_round(
    database: Database,
    deliver: Deliver,
    fires: Fires | None = None,
    alerts: Alerts | None = None,
    every_s: float = maintenance.SCHEDULER_INTERVAL_S,
) -> Round:
    """Run one round of maintenance. Returns counts of what was done.

    deliver: sends tasks, and tells monitors which ones others take over, and why. fires: runs schedules. alerts: sends
    the alerts of sweeps.
    every_s: seconds between two rounds.

    Raises StoreError if the database is unreachable; BrokerError if the broker is, after everything else was done.
    """
    maintenance.end_silent_sessions(database)
    lost = maintenance.reclaim(database)
    given_up = [row for row in lost if row.losses >= maintenance.SET_ASIDE_LOSSES]
    for row in given_up:
        maintenance.set_aside(database, row)
    maintenance.forget_dead_slots(database)
    approvals.expire(database)
    for sweep_id in deferred.open_with_deferred(database):
        deferred.begin_deferred(database, sweep_id)
    finished = paused = 0
    unfinished = []
    for sweep in maintenance.open_sweeps(database):
        if _is_overdue(sweep):
            paused += leases.pause(database, sweep.id, _overdue(sweep), by="scheduler")
        elif sweep.unfinished:
            unfinished.append(sweep)
        elif sweep.status == "running":
            finished += complete(database, sweep.id)
    if fires is not None:
        fires.look()
    tasks = [*publishing.publish_again(database, ROUNDS_TO_CLAIM * every_s), *publishing.publish(database)]
    try:
        deliver(tasks, {row.task_id: TAKEN_OVER for row in lost if row.task_id is not None})
    except Exception as error:
        raise BrokerError(f"the broker accepts no messages: {error}") from error
    finally:
        finished += _keep_up_to_date(database, unfinished)
        if alerts is not None:
            alerts.look()
        _remove_hidden(database)
    return {
        "taken_back": len(lost),
        "set_aside": len(given_up),
        "finished": finished,
        "paused": paused,
        "published": len(tasks),
    }


def _keep_up_to_date(database: Database, unfinished: Sequence[OpenSweep]) -> int:
    """Tally sweeps, end those of which enough is known, and keep the matrices of those at their end.

    This comes after what gives work, since it takes long for a million cells. Returns how many sweeps it ended.
    """
    finished = 0
    for sweep in unfinished:
        tallies.tally(database, sweep.id, within_s=TALLY_S)
        finished += _is_known(database, sweep)
    for sweep_id in maintenance.unfrozen(database):
        freeze(database, sweep_id)
    return finished


def _remove_hidden(database: Database) -> None:
    """Remove rows of sweeps that were deleted, or whose submission was given up, for a while."""
    end = time.monotonic() + REMOVAL_S
    remove_hidden(database, lambda: time.monotonic() > end)


def _is_known(database: Database, sweep: SweepRow) -> bool:
    """End a sweep that asks for that as soon as enough is known. Returns True if this call ended it."""
    try:
        return sweep.status == "running" and stop_where_known(database, sweep) is not None
    except ConflictError:  # somebody was quicker
        return False


def _overdue(sweep: OpenSweep) -> str:
    return f"{WALL} = {sweep.spec['limits']['wall']:g} s"


def _is_overdue(sweep: OpenSweep) -> bool:
    wall = sweep.spec["limits"]["wall"]
    return wall is not None and sweep.running_s is not None and sweep.running_s > wall
