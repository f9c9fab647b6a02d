"""Schedules and their fires: the statements that create fires, carry them out and list them.

A process carries out a fire while it holds its lease, under a token: a process that lost the lease can change nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from wtb.core.cron import BAD, TRIES, due, next_after, zone_of
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.ids import new_id
from wtb.core.scoring.failure_scores import MOST_LOST
from wtb.store.access.projects import in_scope
from wtb.store.bulk import NewRow, equal, fetch_row, fetch_rows, insert_missing
from wtb.store.database import Database
from wtb.store.read.baselines import Fire, fires_query
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.column_types import is_ahead, is_over
from wtb.store.tables.schema import cells, fires, now, schedules, sessions, sweeps
from wtb.store.transactions import clock

if TYPE_CHECKING:
    from wtb.config.webhooks import Target

_ENDED = ("judged", "failed")
_OPEN = sa.or_(fires.c.status.in_(("due", "starting", "running")), fires.c.lease_until.is_not(None))


@frozen
class Claim:
    """A fire that one process carries out."""

    schedule_id: str
    fire_at: float
    token: int


@frozen
class Due:
    """The outcome of `make_due` for a schedule that was due.

    Attributes:
        schedule: Its name.
        fire_at: The fire that was created; None if there is one already, or if all were skipped.
        missed: How many others there would have been.
        problem: The error if no fire could be created.
    """

    schedule: str
    fire_at: float | None
    missed: int
    problem: str | None = None


# Schedules


@frozen
class NewSchedule:
    """A schedule to be stored.

    Attributes:
        name: Its name.
        session: The name of its session.
        file: The absolute path of its sweep file.
        folder: The folder in which its fires are carried out.
        cron: When it fires: five fields.
        tz: The time zone of `cron`.
        missed: Whether missed fires are made up for once, or skipped.
        queued: Whether its sweeps are for workers.
        baseline: The name of the baseline that its sweeps are compared with, or `last`.
        margin: The losses that would matter, by metric.
        notify: The target of notifications.
    """

    name: str
    session: str
    file: str
    folder: str
    cron: str
    tz: str
    missed: Literal["once", "skip"]
    queued: bool
    baseline: str | None
    margin: Mapping[str, float]
    notify: Target


@frozen
class Schedule(NewSchedule):
    """A stored schedule, as it was when it was read.

    Attributes:
        id: Its id.
        session_id: Its session.
        status: active or paused.
        next_at: Its next fire; None while it is paused.
        created_at: When it was created.
        now: When it was read, on the database's clock.
    """

    id: str
    session_id: str
    status: str
    next_at: float | None
    created_at: float
    now: float


def add_schedule(database: Database, new: NewSchedule) -> Schedule:
    """Store a new schedule. Raises ConflictError if its name is taken."""
    with database.write() as connection:
        if connection.scalar(sa.select(schedules.c.id).where(schedules.c.name == new.name)) is not None:
            raise ConflictError(
                f"there is a schedule {new.name!r} already; `wtb schedule remove {shlex.quote(new.name)}` removes it"
            )
        mine = sa.select(sessions.c.id).where(sessions.c.name == new.session, *in_scope(connection, sessions))
        session = mine.scalar_subquery()
        columns = {key: field for key, field in vars(new).items() if key != "session"}
        insert = schedules.insert().values(columns)
        next_at = _next(connection, new.cron, new.tz)
        connection.execute(insert.values(id=new_id(), session_id=session, status="active", next_at=next_at))
    return find_schedule(database, new.name)


def find_schedule(database: Database, name: str) -> Schedule:
    """Return a schedule. Raises InputError with a near match."""
    with database.read() as connection:
        row = fetch_row(connection, _schedules().where(schedules.c.name == name, *in_scope(connection, schedules)))
        if row is not None:
            return Schedule(**row)
        near = did_you_mean(
            name, connection.scalars(sa.select(schedules.c.name).where(*in_scope(connection, schedules)).limit(1000))
        )
    raise NotFound(f"there is no schedule {name!r}{near}; `wtb schedule list` shows all", kind="schedule")


def all_schedules(database: Database, session: str | None = None) -> list[Schedule]:
    """Return schedules by name, those of one session or all."""
    query = _schedules().order_by(schedules.c.name).where(*equal({sessions.c.name: session}))
    query = query.where(*in_scope(database, schedules))
    return [Schedule(**row) for row in database.rows(query)]


def _schedules() -> sa.Select[Any]:
    query = sa.select(schedules, sessions.c.name.label("session"), now().label("now"))
    return query.join(sessions, sessions.c.id == schedules.c.session_id)


def pause_schedule(database: Database, schedule_id: str) -> bool:
    """Stop creating fires of a schedule. Returns True if this call made the change."""
    return _set_status(database, schedule_id, "paused")


def resume_schedule(database: Database, schedule_id: str) -> bool:
    """Create fires of a schedule again; those of the pause are skipped. Returns True if it was paused."""
    return _set_status(database, schedule_id, "active")


def _set_status(database: Database, schedule_id: str, to: Literal["active", "paused"]) -> bool:
    with database.write() as connection:
        mine = schedules.c.id == schedule_id, schedules.c.status != to
        row = fetch_row(connection, sa.select(schedules).where(*mine).with_for_update())
        if row is None:
            return False
        next_at = _next(connection, row["cron"], row["tz"]) if to == "active" else None
        connection.execute(schedules.update().where(*mine).values(status=to, next_at=next_at))
    return True


def _next(connection: sa.Connection, cron: str, tz: str) -> float:
    return next_after(cron, zone_of(tz), clock(connection))


def remove_schedule(database: Database, schedule_id: str) -> int:
    """Delete a schedule and its fires; their sweeps stay. Returns how many fires it had."""
    with database.write() as connection:
        fire_count = connection.execute(fires.delete().where(fires.c.schedule_id == schedule_id)).rowcount
        connection.execute(schedules.delete().where(schedules.c.id == schedule_id))
    return fire_count


# Making fires


def make_due(database: Database) -> list[Due]:
    """Create the fires that are due, at most one for each schedule.

    A fire that has not begun yet stands for those that would follow it. A next fire that is later than the cron text
    allows was written while the clock was ahead, and is corrected first.
    """
    ripe = sa.select(schedules, now().label("now")).where(schedules.c.status == "active", schedules.c.next_at <= now())
    due_fires = []
    _set_right(database)
    with database.write() as connection:
        # Another scheduler that creates the fires of a schedule just now has its row locked.
        for row in fetch_rows(connection, ripe.with_for_update(skip_locked=True)):
            try:
                fire = due(row["cron"], zone_of(row["tz"]), row["next_at"], row["now"], row["missed"])
            except InputError as error:  # this machine knows fewer time zones than that of `wtb schedule add`
                due_fires.append(Due(row["name"], None, 0, str(error)))
                continue
            waits = sa.select(fires.c.fire_at).where(fires.c.schedule_id == row["id"], fires.c.status == "due").limit(1)
            fire_at, missed = fire.fire_at, fire.missed
            if fire_at is not None and connection.execute(waits).first() is not None:
                fire_at, missed = None, missed + 1
            if fire_at is not None:
                reasons = [f"{missed:,} {'fire' if missed == 1 else 'fires'} before it were missed"] if missed else None
                new = {"schedule_id": row["id"], "fire_at": fire_at, "status": "due", "why": reasons}
                insert_missing(connection, fires, [new])
            connection.execute(schedules.update().where(schedules.c.id == row["id"]).values(next_at=fire.next_at))
            due_fires.append(Due(row["name"], fire_at, missed))
    return due_fires


def is_misplaced(schedule: NewRow) -> bool:
    """Return whether the next fire of an active schedule is later than its cron text allows, by the database's
    clock.
    """
    if schedule["status"] != "active" or schedule["next_at"] is None or schedule["next_at"] <= schedule["now"]:
        return False
    try:
        return bool(schedule["next_at"] > next_after(schedule["cron"], zone_of(schedule["tz"]), schedule["now"]))
    except InputError:  # for a time zone that this machine does not know
        return False


def _set_right(database: Database) -> None:
    """Recompute next fires that a clock which was ahead has put too late, so that they fire again from now on."""
    active = sa.select(schedules, now().label("now")).where(schedules.c.status == "active", schedules.c.next_at > now())
    with database.read() as connection:
        misplaced = [row["id"] for row in fetch_rows(connection, active) if is_misplaced(row)]
    for id in misplaced:
        with database.write() as connection:
            # Read again under the lock, because another scheduler may have corrected it, or the schedule was paused.
            row = fetch_row(connection, active.where(schedules.c.id == id).with_for_update(of=schedules))
            if row is not None and is_misplaced(row):
                next_at = next_after(row["cron"], zone_of(row["tz"]), row["now"])
                connection.execute(schedules.update().where(schedules.c.id == id).values(next_at=next_at))


def make_manual(database: Database, schedule_id: str) -> float:
    """Create a fire now, without the clock. Returns its time."""
    new = fires.insert().values(schedule_id=schedule_id, fire_at=now(), status="due", manual=True)
    with database.write() as connection:
        return float(connection.execute(new.returning(fires.c.fire_at)).scalar_one())


# Carrying fires out


def open_fires(database: Database, schedule_id: str | None = None) -> list[Fire]:
    """Return fires that have not ended or whose notification is due, the oldest first."""
    query = fires_query().where(_OPEN).order_by(fires.c.fire_at)
    return [Fire(**row) for row in database.rows(query.where(*equal({fires.c.schedule_id: schedule_id})))]


def claim(database: Database, fire: Fire) -> Claim | None:
    """Claim a fire that nobody carries out; returns None if another process was quicker, or nothing can be done about
    it.

    A fire whose processes died TRIES times is given up and fails.
    """
    step = fire.next_step
    if step is None:
        return None
    free = sa.or_(fires.c.lease_until.is_(None), is_over(fires.c.lease_until))
    update = fires.update().where(
        # The fire must be as it was read, or another process has changed it since.
        *_key(fire.schedule_id, fire.fire_at),
        fires.c.token == fire.token,
        fires.c.status == fire.status,
        free,
    )
    if fire.tries >= TRIES:
        database.execute(_given_up(update, fire, step))
        return None
    claimed = update.values(token=fires.c.token + 1, lease_until=now() + LEASE_S, tries=fires.c.tries + 1)
    if step == "submit":
        claimed = claimed.values(status="starting")
    with database.write() as connection:
        if not connection.execute(claimed).rowcount:
            return None
    return Claim(fire.schedule_id, fire.fire_at, fire.token + 1)


def _given_up(update: sa.Update, fire: Fire, step: str) -> sa.Update:
    """Return the statement that ends a given-up fire, from the one that finds it."""
    doing = {
        "submit": "began its sweep",
        "run": "ran its sweep",
        "judge": "judged its sweep",
        "notify": "sent its notification",
    }
    why = f"its process died {TRIES} times while it {doing[step]}"
    if step == "notify":
        return update.values(lease_until=None, notify_error=why)
    until = now() if fire.notify else None
    reasons = [*(fire.why or []), why]
    ended = update.values(status="failed", verdict="failed", why=reasons, finished_at=now())
    return ended.values(lease_until=until, tries=0)


def find_fire(database: Database, claimed: Claim) -> Fire | None:
    """Return a fire with its schedule's settings and its sweep's status; None if the claim is lost."""
    row = database.row(fires_query().where(*_of(claimed)))
    return None if row is None else Fire(**row)


def renew(database: Database, claimed: Claim) -> bool:
    """Renew the lease of a fire. Returns True if the claim still holds it, and something is left to do."""
    update = fires.update().where(*_of(claimed), fires.c.lease_until.is_not(None))
    return database.execute(update.values(lease_until=now() + LEASE_S)) > 0


def release(database: Database, claimed: Claim, *, after: float = 0.0, died: bool = False) -> None:
    """Release a fire.

    Args:
        database: The database.
        claimed: The claim.
        after: Seconds for which nobody may claim it.
        died: Count this as a process that died on its step.
    """
    update = fires.update().where(*_of(claimed), fires.c.lease_until.is_not(None))
    database.execute(update.values(lease_until=now() + after, tries=fires.c.tries if died else 0))


def mark_submitted(connection: sa.Connection, claimed: Claim, sweep_id: str) -> None:
    """Record a fire's sweep, within the transaction that submits it. Raises ConflictError if the claim is lost."""
    query = fires.update().where(*_of(claimed), fires.c.sweep_id.is_(None), fires.c.status == "starting")
    values = {"sweep_id": sweep_id, "status": "running", "started_at": now(), "tries": 0}
    if not connection.execute(query.values(**values)).rowcount:
        raise ConflictError("another process runs this fire, or its schedule was removed; nothing was submitted")


def end_fire(
    database: Database, claimed: Claim, verdict: str, why: Sequence[str], *, baseline: str | None, notify: bool
) -> bool:
    """End a fire, with a notification due if `notify`. Returns False if the claim was lost."""
    values = {
        "status": "failed" if verdict == "failed" else "judged",
        "verdict": verdict,
        "why": list(why),
        "baseline_id": baseline,
        "finished_at": now(),
        "tries": 0,
        **({} if notify else {"lease_until": None}),
    }
    return _change(database, claimed, **values)


def count_notification_try(database: Database, claimed: Claim) -> bool:
    """Count a try to send the notification, before it is made."""
    return _change(database, claimed, notify_tries=fires.c.notify_tries + 1)


def record_notification(database: Database, claimed: Claim, error: str | None, *, retry: bool = False) -> None:
    """Record that a notification was sent, or its error; with `retry` it is tried once more."""
    update = fires.update().where(*_of(claimed)).values(notify_error=error)
    if error is None:
        update = update.values(notified_at=now())
    database.execute(update if retry else update.values(lease_until=None))


def _change(database: Database, claimed: Claim, **values: Any) -> bool:
    return database.execute(fires.update().where(*_of(claimed)).values(**values)) > 0


def _key(schedule_id: str, fire_at: float) -> tuple[sa.ColumnElement[bool], ...]:
    return fires.c.schedule_id == schedule_id, fires.c.fire_at == fire_at


def _of(claimed: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    return *_key(claimed.schedule_id, claimed.fire_at), fires.c.token == claimed.token


# Looking back


def last_ended(database: Database, schedule_id: str, *, well: bool = False) -> Fire | None:
    """Return the fire that was begun last among those that have ended; None if there is none.

    A fire that was interrupted and ends late does not hide fires that began after it. With `well`, only fires count
    that ended well, and whose sweep still exists and is complete except for a few cells that were lost to providers.
    """
    began_at = sa.func.coalesce(fires.c.started_at, fires.c.finished_at)
    query = fires_query().where(fires.c.schedule_id == schedule_id, fires.c.status.in_(_ENDED))
    if well:
        # A night in which a provider lost many cells is no sound reference for the next one.
        lost = cells.c.failure["kind"].as_string() == "provider"
        count = sa.select(sa.func.count()).where(cells.c.sweep_id == fires.c.sweep_id, cells.c.status == "failed", lost)
        is_whole = count.scalar_subquery() <= MOST_LOST * sweeps.c.cells
        query = query.where(fires.c.verdict.not_in(BAD), sweeps.c.status == "completed", is_whole)
    last = sa.case((is_ahead(began_at), 1), else_=0)  # of a clock that was ahead: no later than others
    row = database.row(query.order_by(last, began_at.desc()).limit(1))
    return None if row is None else Fire(**row)
