"""The history of a schedule: the results of its fires, one after the other, and where code changed between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

from wtb.analysis.comparison.changes import changed_code
from wtb.analysis.comparison.series import series_of
from wtb.analysis.kept_matrix import read_matrix
from wtb.core.arguments import Number, checked
from wtb.core.cron import BAD, late_after, zone_of
from wtb.core.documents.administration import FireFigures, HistoricFire, ScheduleHistoryDocument
from wtb.core.documents.matrix import MatrixDocument, MetricEstimate
from wtb.core.documents.shared_types import Combination, FixedReference
from wtb.core.errors import InputError, meant_or_known
from wtb.core.frozen import frozen
from wtb.display.views.listed import fire_document, reference_document
from wtb.features.schedules import queries as store
from wtb.features.schedules.queries import Schedule
from wtb.operations.context import Context
from wtb.store.database import Database
from wtb.store.process_identity import may_live
from wtb.store.read import queries
from wtb.store.read.baselines import Fire, fire_rows
from wtb.store.runs import leases
from wtb.store.tables.sweeps import SweepRow

VERSION: Final = 1


@checked
def history(
    context: Context, name: str, *, metric: str | None = None, limit: Annotated[int, Number(1, 1_000, whole=True)] = 60
) -> ScheduleHistoryDocument:
    """Return the last fires of a schedule, the oldest first, by a metric, with where code changed.

    Args:
        context: Where the schedule is.
        name: Its name.
        metric: The primary one if None.
        limit: How many fires at most.

    Returns:
        The fires. The mean of each is that of the combination that the sweep file asks for, else of the best.

    Raises:
        InputError: If there is no such schedule, or no fire has the metric.
    """
    database = context.database
    schedule = store.find_schedule(database, name)
    nights = list(reversed(fire_rows(database, schedule.id, limit=limit)))
    sweeps = [_sweep(database, fire) for fire in nights]
    matrices = [None if sweep is None else read_matrix(database, sweep) for sweep in sweeps]
    directions = {
        name: metric_facts["better"]
        for matrix in matrices
        if matrix
        for name, metric_facts in matrix["metrics"].items()
    }
    if metric is None:
        metric = next((matrix["primary"] for matrix in reversed(matrices) if matrix and matrix["primary"]), None)
    elif metric not in directions:
        raise InputError(
            f"no fire of schedule {schedule.name!r} is scored by {metric!r}{meant_or_known(metric, directions)}"
        )
    # Matrices of the fires are handed over: a baseline is often one of them.
    figures = _Figures(database, metric, dict(zip((fire.sweep_id for fire in nights), matrices, strict=True)))
    fires: list[HistoricFire] = []
    before: SweepRow | None = None
    for fire, sweep, matrix in zip(nights, sweeps, matrices, strict=True):
        fires.append(
            {
                **fire_document(fire),
                **_figures(matrix, metric),
                "code_changed": _changed(before, sweep),
                "baseline_mean": None if fire.baseline_id is None else figures.of(fire.baseline_id)["mean"],
            }
        )
        # A fire without a sweep does not hide a change of code: the next is compared with the one before.
        before = sweep or before
    return {
        "version": VERSION,
        "schedule": schedule.name,
        "tz": schedule.tz,
        "metric": metric,
        "better": None if metric is None else directions[metric],
        "fires": fires,
        "reference": _reference(database, nights, figures),
    }


class _Figures:
    """The figures of sweeps by one metric, each computed once."""

    def __init__(
        self, database: Database, metric: str | None, matrices: Mapping[str | None, MatrixDocument | None]
    ) -> None:
        self._database, self._metric = database, metric
        self._matrices = dict(matrices)

    def of(self, sweep_id: str) -> FireFigures:
        """Return the figures of a sweep; without any if it was deleted."""
        if sweep_id not in self._matrices:
            try:
                self._matrices[sweep_id] = read_matrix(self._database, queries.find_sweep(self._database, sweep_id))
            except InputError:
                self._matrices[sweep_id] = None
        return _figures(self._matrices[sweep_id], self._metric)


def _reference(database: Database, fires: Sequence[Fire], figures: _Figures) -> FixedReference | None:
    """Return the fixed reference of the last fire that was compared with anything; None if there is none."""
    for sweep in reversed([sweep for fire in fires if (sweep := _sweep(database, fire)) is not None]):
        if (series := series_of(database, sweep)) is not None:
            return reference_document(series.reference, figures.of(series.reference.id))
    return None


def _sweep(database: Database, fire: Fire) -> SweepRow | None:
    return None if fire.sweep_status is None else queries.find_sweep(database, fire.sweep)


def _figures(matrix: MatrixDocument | None, metric: str | None) -> FireFigures:
    combination = None if matrix is None or metric is None else _combination(matrix, metric)
    estimate: MetricEstimate | None = None
    for row in matrix["rows"] if matrix else ():
        if metric is not None and combination is not None and row["combination"] == combination:
            estimate = row["metrics"].get(metric)
    if estimate is None:
        return {"combination": combination, "mean": None, "ci": None, "n": None}
    return {"combination": combination, "mean": estimate["mean"], "ci": estimate["ci"], "n": estimate["n"]}


def _combination(matrix: MatrixDocument, metric: str) -> Combination | None:
    choice = matrix["choice"] or matrix["best"].get(metric)
    return None if choice is None else choice["combination"]


def _changed(before: SweepRow | None, sweep: SweepRow | None) -> list[str]:
    """Return the nodes and tools of servers whose code changed since the fire before."""
    return [] if before is None or sweep is None else changed_code(before, sweep)


@frozen
class ScheduleCheck:
    """The condition of a schedule: whether it does what it should.

    Attributes:
        is_wrong: Its last fire was worse or failed, one is overdue or no process carries it on, or a sweep waits for a
            person.
        sentence: What is wrong, or how its last fire ended.
    """

    is_wrong: bool
    sentence: str


@checked
def check_schedule(context: Context, name: str) -> ScheduleCheck:
    """Check whether the last fire of a schedule ended well, and whether the next ones are on their way.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        What is wrong, if anything is.

    Raises:
        InputError: If there is no such schedule.
    """
    database = context.database
    schedule = store.find_schedule(database, name)
    # First of all: a good last fire is no evidence if none has come since.
    overdue = _overdue(database, schedule)
    if overdue is not None:
        return ScheduleCheck(True, overdue)
    last = store.last_ended(database, schedule.id)
    following = "paused" if schedule.next_at is None else f"next {_moment(schedule.next_at, schedule)}"
    if last is None:
        return ScheduleCheck(False, f"no fire has ended yet; {following}")
    because = "; ".join(last.why or [])
    sentence = f"{last.verdict} at {_moment(last.fire_at, schedule)}" + (f": {because}" if because else "")
    if last.notify_error:
        retry_note = "" if last.lease_until is None else ", and it is tried again"
        sentence += f"; the notification was not sent: {last.notify_error}{retry_note}"
    sweep = f" (sweep {last.sweep_id})" if last.sweep_id else ""
    return ScheduleCheck(last.verdict in BAD, f"{sentence}{sweep}; {following}")


def _overdue(database: Database, schedule: Schedule) -> str | None:
    zone = zone_of(schedule.tz)
    how = "does anything run `wtb schedule run-due` or `wtb scheduler` here?"

    def is_late(at: float) -> bool:
        return bool(schedule.now > at + late_after(schedule.cron, zone, at))

    if store.is_misplaced(vars(schedule)):
        return (
            f"its next fire is {_moment(schedule.next_at or 0.0, schedule)}, later than cron {schedule.cron!r} has it: "
            "the clock was ahead. `wtb schedule run-due` and `wtb scheduler` set it right"
        )
    if schedule.next_at is not None and is_late(schedule.next_at):
        return f"overdue: it should have fired at {_moment(schedule.next_at, schedule)}; {how}"
    for fire in store.open_fires(database, schedule.id):
        at = _moment(fire.fire_at, schedule)
        if fire.status in ("due", "starting") and is_late(fire.fire_at):
            return f"overdue: no process carried out the fire of {at}; {how}"
        if _is_left(database, fire) and is_late(fire.lease_until or fire.fire_at):
            return f"interrupted: no process carries on the fire of {at}; `wtb schedule run-due` does"
        if fire.sweep_status == "paused":
            return (
                f"the sweep of the fire of {at} is paused ({fire.sweep_reason}); continue with: "
                f"wtb resume {fire.sweep_id}"
            )
    return None


def _is_left(database: Database, fire: Fire) -> bool:
    """Return whether the process that carried out a fire, and ran its sweep, has died."""
    if fire.held or fire.sweep_queued or fire.next_step not in ("run", "judge"):
        return False
    # A process of another machine cannot be asked. It may live until its lease has run out.
    return not any(may_live(owner, expired=owner.expired) for owner in leases.owners(database, fire.sweep))


def _moment(at: float, schedule: Schedule) -> str:
    return datetime.fromtimestamp(at, zone_of(schedule.tz)).strftime("%Y-%m-%d %H:%M %Z")
