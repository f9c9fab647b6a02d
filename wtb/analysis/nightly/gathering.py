"""The nights of a baseline, or of a schedule, as the store has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from wtb.analysis.nightly.line import Line, PastNight
from wtb.core.classes.frozen import frozen
from wtb.core.cron import BAD
from wtb.core.errors import InputError
from wtb.store.database import Database
from wtb.store.read.baselines import KEPT_FIRST, LAST, Night, nights_in_session, read_nights
from wtb.store.read.queries import find_sweep
from wtb.store.schedules import Fire, fire_of_sweep, fire_rows
from wtb.store.tables.sweeps import SweepRow


def line_of_baseline(database: Database, name: str, tonight: SweepRow) -> Line | None:
    """Return the nights of a baseline of a sweep's session up to that sweep; None if there is no such baseline."""
    stored = read_nights(database, tonight.session, name)
    if stored is None:
        return None
    reference = _find(database, stored.reference_id)
    baseline = _find(database, stored.baseline_id)
    if reference is None or baseline is None or reference.id == tonight.id:
        return None
    before = [night for night in stored.nights if night.sweep_id != tonight.id]
    repeats = [sweep for id in stored.repeats if (sweep := _find(database, id)) is not None]
    number = stored.count + (len(before) == len(stored.nights))
    return Line(reference, baseline, repeats, list(_past(database, before)), tonight, number)


def line_of_schedule(database: Database, fire: Fire, baseline: SweepRow, tonight: SweepRow) -> Line | None:
    """Return the nights of a schedule that compares with its last good fire; its reference is the first good one."""
    earlier = [other for other in reversed(fire_rows(database, fire.schedule_id)) if other.fire_at < fire.fire_at]
    ended = [other for other in earlier if other.sweep_status == "completed" and other.sweep_id != tonight.id]
    good = next((number for number, other in enumerate(ended) if other.verdict not in (None, *BAD)), None)
    if good is None:
        return None
    reference = _find(database, ended[good].sweep)
    after = [
        Night(other.sweep, other.verdict in BAD, other.verdict not in BAD)
        for other in ended[good + 1 :]
        if other.verdict
    ]
    if reference is None:
        return None
    return Line(reference, baseline, [], list(_past(database, after)), tonight, len(after) + 1)


def line_of_fire(database: Database, fire: Fire, baseline: SweepRow, tonight: SweepRow) -> Line | None:
    """Return the nights that a fire of a schedule is compared with."""
    if fire.baseline == LAST:
        return line_of_schedule(database, fire, baseline, tonight)
    return None if fire.baseline is None else line_of_baseline(database, fire.baseline, tonight)


@frozen
class NightSeries:
    """The nights that one reference belongs to.

    Attributes:
        reference: The sweep that does not move.
        worse: Ids of the nights that were called worse.
    """

    reference: SweepRow
    worse: Set[str]


def series_of(database: Database, night: SweepRow) -> NightSeries | None:
    """Return the series that a night belongs to.

    Args:
        database: Where it is.
        night: A fire of a schedule, or a sweep that was compared with a baseline.

    Returns:
        The series of the schedule, else of the first baseline by name; None if there is none, or its reference was
        deleted.
    """
    fire = fire_of_sweep(database, night.id)
    if fire is None:
        for nights in nights_in_session(database, night.session):
            if any(past.sweep_id == night.id for past in nights.nights):
                reference = _find(database, nights.reference_id)
                worse = {past.sweep_id for past in nights.nights if past.is_worse}
                return None if reference is None else NightSeries(reference, worse)
        return None
    baseline = None if fire.baseline_id is None else _find(database, fire.baseline_id)
    line = None if baseline is None else line_of_fire(database, fire, baseline, night)
    if line is None:
        return None
    return NightSeries(line.reference, {past.sweep.id for past in line.nights if past.is_worse})


def _past(database: Database, nights: Sequence[Night]) -> Iterable[PastNight]:
    for number, night in enumerate(nights):
        if (sweep := _find(database, night.sweep_id)) is not None:
            yield PastNight(sweep, night.is_worse, night.was_accepted, number < KEPT_FIRST)


def _find(database: Database, sweep_id: str) -> SweepRow | None:
    """Return a sweep; None if it was deleted."""
    try:
        return find_sweep(database, sweep_id)
    except InputError:
        return None
