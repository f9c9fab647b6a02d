"""The tick: every few seconds, what nobody in particular would do.

It takes back what workers have lost, ends sweeps that have nothing left to run, keeps their matrices up to date, has
schedules fire and rings for what waits while somebody is free. Several may tick at once, and any of them may be killed
at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wtb.analysis.early_stop import stop_where_known
from wtb.analysis.finalize import complete, freeze
from wtb.core.errors import BrokerError, ConflictError
from wtb.core.stop import WALL
from wtb.execution.runtime.alerts import Alerts
from wtb.store.control import approvals
from wtb.store.database import Database
from wtb.store.read import tallies
from wtb.store.runs import leases, maintenance, queue
from wtb_scheduler.fires import Fires

Rows = Sequence[Mapping[str, Any]]


def tick(
    database: Database, ring: Callable[[Rows], object], fires: Fires | None = None, alerts: Alerts | None = None
) -> dict[str, Any]:
    """Do it once. Returns counts of what was done.

    ring: sends a message for each row. fires: carries out schedules. alerts: tells whom sweeps want to be told.

    Raises StoreError where the database is out of reach, BrokerError where the broker is, with all else done.
    """
    maintenance.end_silent_sessions(database)
    lost = maintenance.take_back(database)
    aside = [row for row in lost if row["losses"] >= maintenance.SET_ASIDE_LOSSES]
    for row in aside:
        maintenance.set_aside(database, row)
    maintenance.forget_dead_slots(database)
    approvals.expire(database)
    finished = paused = 0
    for sweep in maintenance.open_sweeps(database):
        if _is_overdue(sweep):
            paused += leases.pause(database, sweep["id"], _overdue(sweep), by="tick")
        elif sweep["unfinished"]:
            tallies.tally(database, sweep["id"])
            finished += _is_known(database, sweep)
        elif sweep["status"] == "running":
            finished += complete(database, sweep["id"])
    for sweep_id in maintenance.unfrozen(database):
        freeze(database, sweep_id)
    if fires is not None:
        fires.look()
    if alerts is not None:
        alerts.look()
    rows = queue.to_ring(database)
    try:
        ring(rows)
    except Exception as error:
        raise BrokerError(f"the broker takes no message: {error}") from error
    return {"taken_back": len(lost), "set_aside": len(aside), "finished": finished, "paused": paused, "rung": len(rows)}


def _is_known(database: Database, sweep: Mapping[str, Any]) -> bool:
    """Whether a sweep was ended since it asks for that as soon as enough is known."""
    try:
        return sweep["status"] == "running" and stop_where_known(database, sweep) is not None
    except ConflictError:  # somebody was quicker
        return False


def _overdue(sweep: Mapping[str, Any]) -> str:
    return f"{WALL} = {sweep['spec']['limits']['wall']:g} s"


def _is_overdue(sweep: Mapping[str, Any]) -> bool:
    wall = sweep["spec"]["limits"]["wall"]
    return wall is not None and sweep["running_s"] is not None and sweep["running_s"] > wall
