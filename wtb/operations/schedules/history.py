"""The history of a schedule: what its fires came to, one after the other, and where code changed between them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from wtb.analysis.comparison.changes import changed_nodes
from wtb.analysis.matrix.build import build
from wtb.core.cron import BAD, late_after, next_step, zone_of
from wtb.core.errors import InputError, meant_or_known
from wtb.core.serialization.plain_json import iso
from wtb.store import schedules as store
from wtb.store.database import Database
from wtb.store.process_identity import may_live
from wtb.store.read import queries
from wtb.store.runs import leases

Row = Mapping[str, Any]
Document = dict[str, Any]

VERSION = 1


def history(database: Database, schedule: Row, metric: str | None = None, limit: int = 60) -> Document:
    """Return the last fires of a schedule, the oldest first, by a metric.

    Args:
        database: The database of the schedule.
        schedule: Its row, of `find_schedule`.
        metric: The primary one if None.
        limit: How many fires at most.

    Returns:
        {"version", "schedule", "tz", "metric", "better", "fires": [{..., combination, mean, ci, n, code_changed:
        [nodes]}]} with the keys of `fire_document`. The mean is that of the combination that the sweep file asks for,
        else of the best.

    Raises:
        InputError: If no fire has the metric.
    """
    rows = list(reversed(store.fire_rows(database, schedule["id"], limit=limit)))
    sweeps = [_sweep(database, row) for row in rows]
    matrices = [None if sweep is None else build(database, sweep) for sweep in sweeps]
    directions = {name: found["better"] for one in matrices if one for name, found in one["metrics"].items()}
    if metric is None:
        metric = next((one["primary"] for one in reversed(matrices) if one and one["primary"]), None)
    elif metric not in directions:
        raise InputError(
            f"no fire of schedule {schedule['name']!r} is scored by {metric!r}{meant_or_known(metric, directions)}"
        )
    fires = []
    before: Row | None = None
    for row, sweep, matrix in zip(rows, sweeps, matrices, strict=True):
        fires.append({**fire_document(row), **_figures(matrix, metric), "code_changed": _changed(before, sweep)})
        before = sweep or before
    return {
        "version": VERSION,
        "schedule": schedule["name"],
        "tz": schedule["tz"],
        "metric": metric,
        "better": None if metric is None else directions[metric],
        "fires": fires,
    }


def _sweep(database: Database, row: Row) -> Row | None:
    return None if row["sweep_status"] is None else queries.find_sweep(database, row["sweep_id"])


def fire_document(row: Row) -> Document:
    """Return a fire as a document, from its row."""
    return {
        "fire_at": iso(row["fire_at"]),
        "manual": row["manual"],
        "status": row["status"],
        "verdict": row["verdict"],
        "because": row["why"] or [],
        "sweep": row["sweep_id"],
        "baseline": row["baseline_id"],
        "notified_at": iso(row["notified_at"]),
        "notification_error": row["notify_error"],
    }


def _figures(matrix: Document | None, metric: str | None) -> Document:
    combination = None if matrix is None or metric is None else _combination(matrix, metric)
    found: Document = {}
    for row in matrix["rows"] if matrix else ():
        if combination is not None and row["combination"] == combination:
            found = row["metrics"].get(metric, {})
    return {"combination": combination, "mean": found.get("mean"), "ci": found.get("ci"), "n": found.get("n")}


def _combination(matrix: Document, metric: str) -> Any:
    choice = matrix.get("choice")
    return (choice or matrix["best"].get(metric) or {}).get("combination")


def _changed(before: Row | None, sweep: Row | None) -> list[str]:
    """The nodes whose code changed since the fire before."""
    if before is None or sweep is None:
        return []
    return changed_nodes(before["fingerprints"], sweep["fingerprints"])


def problems(database: Database, schedule: Row) -> tuple[bool, str]:
    """Return whether something is wrong with a schedule, and a sentence on its status.

    Wrong are a last fire that was worse or failed, one that is overdue or that no process carries on, and a sweep that
    waits for a person.
    """
    overdue = _overdue(database, schedule)
    if overdue is not None:
        return True, overdue
    last = store.last_ended(database, schedule["id"])
    following = "paused" if schedule["next_at"] is None else f"next {_moment(schedule['next_at'], schedule)}"
    if last is None:
        return False, f"no fire has ended yet; {following}"
    because = "; ".join(last["why"] or [])
    sentence = f"{last['verdict']} at {_moment(last['fire_at'], schedule)}" + (f": {because}" if because else "")
    if last["notify_error"]:
        again = "" if last["lease_until"] is None else ", and it is tried again"
        sentence += f"; the notification was not sent: {last['notify_error']}{again}"
    sweep = f" (sweep {last['sweep_id']})" if last["sweep_id"] else ""
    return last["verdict"] in BAD, f"{sentence}{sweep}; {following}"


def _overdue(database: Database, schedule: Row) -> str | None:
    zone = zone_of(schedule["tz"])
    how = "does anything run `wtb schedule run-due` or `wtb scheduler` here?"

    def is_late(at: float) -> bool:
        return bool(schedule["now"] > at + late_after(schedule["cron"], zone, at))

    if schedule["next_at"] is not None and is_late(schedule["next_at"]):
        return f"overdue: it should have fired at {_moment(schedule['next_at'], schedule)}; {how}"
    for fire in store.open_fires(database, schedule["id"]):
        at = _moment(fire["fire_at"], schedule)
        if fire["status"] in ("due", "starting") and is_late(fire["fire_at"]):
            return f"overdue: no process carried out the fire of {at}; {how}"
        if _is_left(database, fire) and is_late(fire["lease_until"] or fire["fire_at"]):
            return f"interrupted: no process carries on the fire of {at}; `wtb schedule run-due` does"
        if fire["sweep_status"] == "paused":
            return (
                f"the sweep of the fire of {at} is paused ({fire['sweep_reason']}); go on with: "
                f"wtb resume {fire['sweep_id']}"
            )
    return None


def _is_left(database: Database, fire: Row) -> bool:
    """Return whether the process that carried out a fire, and ran its sweep, has died."""
    if fire["held"] or fire["sweep_queued"] or next_step(fire) not in ("run", "judge"):
        return False
    return not any(map(may_live, leases.owners(database, fire["sweep_id"])))


def _moment(at: float, schedule: Row) -> str:
    return datetime.fromtimestamp(at, zone_of(schedule["tz"])).strftime("%Y-%m-%d %H:%M %Z")
