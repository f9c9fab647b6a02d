"""Sweeps that later ones are compared with: baselines, whose sweeps are kept, and fires of schedules."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from wtb.core.cron import Step, next_step
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.store.access.projects import in_scope
from wtb.store.bulk import fetch_row, insert_of
from wtb.store.database import Database
from wtb.store.housekeeping.retention import lock_present, locked_sweep
from wtb.store.log import add_event, of_sweep, subject
from wtb.store.read.queries import find_sweep
from wtb.store.records import ListedBaseline, StoredNights
from wtb.store.tables.column_types import is_over
from wtb.store.tables.schema import baselines, fires, is_visible, now, schedules, sessions, sweeps
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.config.webhooks import Target
    from wtb.core.documents.comparison import NoiseFloorDocument

KEPT_FIRST, KEPT_LAST = 8, 60  # nights: the first may count as repeats of the reference, the last are tested
LAST = "last"  # in schedules: the last fire that ended well; so it cannot name a baseline


def check_name(name: str) -> None:
    """Raise InputError if a baseline must not have this name."""
    if not (0 < len(name.strip()) == len(name) <= 200 and name.isprintable()) or name == LAST:
        raise InputError(
            f"{name!r} cannot be the name of a baseline; expected 1 to 200 printable characters, not 'last'"
        )


def find_baseline(database: Database, session: str, name: str) -> SweepRow | None:
    """Return the sweep that is the baseline of a name in a session (by its name), as `find_sweep` does, or None."""
    query = _rows(sa.select(baselines.c.sweep_id)).where(sessions.c.name == session, baselines.c.name == name)
    query = query.where(*in_scope(database, baselines))
    sweep_id = database.scalar(query)
    return None if sweep_id is None else find_sweep(database, sweep_id)


def named_baseline(database: Database, session: str, name: str) -> SweepRow:
    """Return a baseline as `find_baseline` does. Raises NotFound with a near match if there is none."""
    baseline = find_baseline(database, session, name)
    if baseline is not None:
        return baseline
    names = [row.name for row in baseline_rows(database, session)]
    near = did_you_mean(name, names)
    how = near or f"; `wtb baseline set {shlex.quote(name)} SWEEP` makes a finished sweep one"
    raise NotFound(f"there is no baseline {name!r} in session {session!r}{how}", kind="baseline")


@frozen
class Night:
    """A sweep that was compared with a baseline.

    Attributes:
        sweep_id: Its id.
        is_worse: Whether the comparison called it worse.
        was_accepted: Whether it became the baseline, or is a fire of a schedule that ended well.
    """

    sweep_id: str
    is_worse: bool
    was_accepted: bool


@frozen
class Nights:
    """The nights of a baseline since its reference was set.

    Attributes:
        reference_id: The sweep that was set by hand, which does not change.
        baseline_id: The sweep that is the baseline now.
        repeats: Ids of repeats of the reference.
        nights: The nights after it, the oldest first.
        count: How many nights there were in all, of which the oldest may have been left out.
    """

    reference_id: str
    baseline_id: str
    repeats: Sequence[str]
    nights: Sequence[Night]
    count: int


def read_nights(database: Database, session: str, name: str) -> Nights | None:
    """Return the nights of a baseline of a session (by its name); None if there is no such baseline."""
    return next(iter(nights_in_session(database, session, baselines.c.name == name)), None)


def nights_in_session(database: Database, session: str, *conditions: sa.ColumnElement[bool]) -> list[Nights]:
    """Return the nights of each baseline of a session (by its name), in the order of the baselines' names."""
    columns = baselines.c.sweep_id, baselines.c.reference_id, baselines.c.noise_floor, baselines.c.nights
    query = _rows(sa.select(*columns)).where(sessions.c.name == session, *conditions).order_by(baselines.c.name)
    every: list[Nights] = []
    for row in database.rows(query.where(*in_scope(database, baselines))):
        stored = _stored(row["nights"], row["noise_floor"])
        nights = [Night(*night) for night in stored["nights"]]
        reference = row["reference_id"] or row["sweep_id"]
        every.append(Nights(reference, row["sweep_id"], stored["repeats"], nights, stored["count"]))
    return every


def _stored(nights: StoredNights | None, floor: NoiseFloorDocument | None) -> StoredNights:
    """Return the nights of a row; a new row has the repeats by which its noise was measured."""
    return nights or {"repeats": list(floor["sweeps"]) if floor else [], "nights": [], "count": 0}


def add_night(database: Database, session_id: str, name: str, night: Night) -> None:
    """Record that a sweep was compared with a baseline, and make it the baseline if it was accepted.

    The reference stays. A sweep counts once, however often it is compared. Only the first and the last nights are kept.
    """
    with database.write() as connection:
        # Sweeps are locked before baselines, as on deletion, which checks for baselines under the lock of the sweep.
        sweep = locked_sweep(connection, night.sweep_id)
        query = sa.select(baselines).where(*_named(session_id, name)).with_for_update()
        row = fetch_row(connection, query)
        if row is None or sweep is None:
            return
        stored = _stored(row["nights"], row["noise_floor"])
        other_nights = [earlier for earlier in stored["nights"] if earlier[0] != night.sweep_id]
        # A sweep that is compared again replaces its night, and is not counted twice.
        stored["count"] += len(other_nights) == len(stored["nights"])
        stored["nights"] = [*other_nights[:KEPT_FIRST], *other_nights[KEPT_FIRST:][-KEPT_LAST:], astuple(night)]
        values: dict[str, Any] = {"nights": stored}
        if night.was_accepted and row["sweep_id"] != night.sweep_id:
            reference = row["reference_id"] or row["sweep_id"]
            values |= {"sweep_id": night.sweep_id, "set_at": now(), "noise_floor": None, "reference_id": reference}
            add_event(connection, of_sweep(sweep), "baseline.set", {"name": name})
        connection.execute(baselines.update().where(*_named(session_id, name)).values(values))


def noise_floor(database: Database, sweep_id: str) -> NoiseFloorDocument | None:
    """Return the noise between repeats of a sweep, as measured for a baseline; None if it was not measured."""
    query = sa.select(baselines.c.noise_floor).where(baselines.c.sweep_id == sweep_id)
    floors = database.scalars(query.where(baselines.c.noise_floor.is_not(None)).order_by(baselines.c.set_at.desc()))
    return next(iter(floors), None)


def baseline_rows(database: Database, session: str | None = None) -> list[ListedBaseline]:
    """Return baselines by session and name, each with the id, name, status and end of its sweep."""
    query = _rows(
        sa.select(
            baselines.c.name,
            sessions.c.name.label("session"),
            *(baselines.c[name] for name in ("set_at", "sweep_id", "noise_floor", "reference_id", "nights")),
            sweeps.c.name.label("sweep"),
            sweeps.c.status,
            sweeps.c.finished_at,
        ).join(sweeps, sweeps.c.id == baselines.c.sweep_id)
    ).order_by(sessions.c.name, baselines.c.name)
    query = query.where(*in_scope(database, baselines), *in_scope(database, sweeps))
    if session is not None:
        query = query.where(sessions.c.name == session)
    return database.records(ListedBaseline, query)


def set_baseline(
    database: Database, name: str, sweep_id: str, noise_floor: NoiseFloorDocument | None = None
) -> str | None:
    """Make a sweep the baseline of a name in its session, and the reference of the nights after it.

    Args:
        database: The database.
        name: The name of the baseline.
        sweep_id: The sweep.
        noise_floor: The noise between its repeats; without it a sweep that is the baseline already keeps its own.

    Returns:
        The id of the sweep that was the baseline before, if any.

    Raises:
        InputError: For an invalid name.
        ConflictError: If the sweep is being deleted.
    """
    check_name(name)
    with database.write() as connection:
        sweep = lock_present(connection, sweep_id)
        mine = _named(sweep.session_id, name)
        before = connection.scalar(sa.select(baselines.c.sweep_id).where(*mine))
        insert = insert_of(connection, baselines)
        insert = insert.values(session_id=sweep.session_id, name=name, sweep_id=sweep_id)
        insert = insert.values(set_at=now(), noise_floor=noise_floor, reference_id=None, nights=None)
        changed = ["sweep_id", "set_at", "reference_id", "nights"]
        changed += ["noise_floor"] if noise_floor is not None or before != sweep_id else []
        changes = {column: insert.excluded[column] for column in changed}
        connection.execute(insert.on_conflict_do_update(index_elements=["session_id", "name"], set_=changes))
        if before != sweep_id:
            add_event(connection, of_sweep(sweep), "baseline.set", {"name": name})
    return before


def remove_baseline(database: Database, session: str, name: str) -> str | None:
    """Remove a baseline; its sweep stays. Returns that sweep's id, or None if there was no such baseline."""
    with database.write() as connection:
        session_id = connection.scalar(
            sa.select(sessions.c.id).where(sessions.c.name == session, *in_scope(connection, sessions))
        )
        query = baselines.delete().where(*_named(session_id or "", name)).returning(baselines.c.sweep_id)
        sweep_id = connection.scalar(query)
        if session_id is not None and sweep_id is not None:
            add_event(connection, subject(session_id, sweep_id), "baseline.removed", {"name": name})
    return sweep_id


def names_of(database: Database, sweep_id: str) -> list[str]:
    """Return the names of the baselines that a sweep is, or is the reference of."""
    mine = sa.or_(baselines.c.sweep_id == sweep_id, baselines.c.reference_id == sweep_id)
    return database.scalars(sa.select(baselines.c.name).where(mine).order_by(baselines.c.name))


def check_no_baseline(connection: sa.Connection, sweep_id: str) -> None:
    """Raise ConflictError if a sweep that is to be deleted is a baseline or the reference of one, with its name."""
    names = list(
        connection.scalars(sa.select(baselines.c.name).where(baselines.c.sweep_id == sweep_id).order_by("name"))
    )
    of_references = sa.select(baselines.c.name).where(baselines.c.reference_id == sweep_id).order_by("name")
    what = "baseline" if names else "reference of baseline"
    names = names or list(connection.scalars(of_references))
    if names:
        raise ConflictError(
            f"sweep {sweep_id} is the {what} {', '.join(map(repr, names))}; set that to another sweep, or remove it "
            f"with `wtb baseline remove {shlex.quote(names[0])}`"
        )


def _named(session_id: str, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return baselines.c.session_id == session_id, baselines.c.name == name


def _rows(query: sa.Select[Any]) -> sa.Select[Any]:
    return query.select_from(baselines).join(sessions, sessions.c.id == baselines.c.session_id)


@frozen
class Fire:
    """A fire with the settings of its schedule and the status of its sweep, as they were when it was read.

    Attributes:
        schedule_id: Its schedule.
        fire_at: When it was due.
        status: due, starting, running, judged or failed.
        manual: Whether a person started it.
        token: Grows with each claim.
        lease_until: When its lease ends; after the end of the fire it has one as long as a notification is due.
        held: Whether its lease is valid.
        tries: How many processes have died on its present step.
        sweep_id: Its sweep; None before that is submitted.
        sweep_status: The status of the sweep; None if it does not exist.
        sweep_reason: The reason of that status.
        sweep_queued: Whether workers run it.
        baseline_id: The sweep that it was compared with.
        verdict: Its verdict; None before its end.
        why: Sentences that explain the verdict.
        notified_at: When its notification was sent.
        notify_tries: How often that was tried.
        notify_error: The error of the last try.
        started_at: When its sweep was submitted.
        finished_at: When it ended.
        schedule: The name of its schedule.
        session: The name of the session of its schedule.
        file: The sweep file.
        folder: The folder in which it is carried out.
        cron: When it fires.
        tz: The time zone of `cron`.
        queued: Whether its sweeps are for workers.
        baseline: The name of the baseline that it is compared with, or `last`.
        margin: The losses that would matter, by metric.
        notify: The target of notifications.
    """

    schedule_id: str
    fire_at: float
    status: str
    manual: bool
    token: int
    lease_until: float | None
    held: bool
    tries: int
    sweep_id: str | None
    sweep_status: str | None
    sweep_reason: str | None
    sweep_queued: bool | None
    baseline_id: str | None
    verdict: str | None
    why: Sequence[str] | None
    notified_at: float | None
    notify_tries: int
    notify_error: str | None
    started_at: float | None
    finished_at: float | None
    schedule: str
    session: str
    file: str
    folder: str
    cron: str
    tz: str
    queued: bool
    baseline: str | None
    margin: Mapping[str, float]
    notify: Target

    @property
    def sweep(self) -> str:
        """The id of its sweep, for a fire whose sweep was submitted."""
        assert self.sweep_id is not None, "its sweep was submitted"
        return self.sweep_id

    @property
    def next_step(self) -> Step | None:
        """The next step; None if nothing can be done just now."""
        return next_step(
            status=self.status,
            lease_until=self.lease_until,
            sweep_status=self.sweep_status,
            sweep_reason=self.sweep_reason,
            sweep_queued=self.sweep_queued,
        )


def fires_query() -> sa.Select[Any]:
    """Return the query for fires, as `Fire`."""
    return (
        sa.select(
            fires,
            *(schedules.c[name] for name in ("file", "folder", "cron", "tz", "queued", "baseline", "margin")),
            schedules.c.notify,
            schedules.c.name.label("schedule"),
            sessions.c.name.label("session"),
            sweeps.c.status.label("sweep_status"),
            sweeps.c.reason.label("sweep_reason"),
            sweeps.c.queued.label("sweep_queued"),
            sa.func.coalesce(sa.not_(is_over(fires.c.lease_until)), sa.false()).label("held"),
        )
        .join(schedules, schedules.c.id == fires.c.schedule_id)
        .join(sessions, sessions.c.id == schedules.c.session_id)
        .outerjoin(sweeps, sa.and_(sweeps.c.id == fires.c.sweep_id, is_visible))
    )


def fire_rows(database: Database, schedule_id: str, limit: int | None = None) -> list[Fire]:
    """Return fires of a schedule, the newest first."""
    query = fires_query().where(fires.c.schedule_id == schedule_id).order_by(fires.c.fire_at.desc()).limit(limit)
    return [Fire(**row) for row in database.rows(query)]


def fire_of_sweep(database: Database, sweep_id: str) -> Fire | None:
    """Return the fire that ran a sweep; None if no schedule did."""
    row = database.row(fires_query().where(fires.c.sweep_id == sweep_id))
    return None if row is None else Fire(**row)
