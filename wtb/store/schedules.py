"""Schedules and their fires: the statements of whoever makes fires, carries them out or looks at them.

A fire is carried out by whoever holds its lease, under a token: what comes from a process that lost it changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.cron import BAD, TRIES, Step, due, next_after, next_step, zone_of
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.core.ids import new_id
from wtb.core.scoring.failure_scores import MOST_LOST
from wtb.store.access.scope import in_scope
from wtb.store.bulk import NewRow, equal, fetch_row, fetch_rows, insert_missing
from wtb.store.database import Database
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.column_types import is_ahead, is_over
from wtb.store.tables.schema import cells, fires, is_visible, now, schedules, sessions, sweeps
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
class Fire:
    """A fire with the settings of its schedule and the status of its sweep, as they were when it was read.

    Attributes:
        schedule_id: Its schedule.
        fire_at: When it was due.
        status: due, starting, running, judged or failed.
        manual: Whether a person asked for it.
        token: Grows with each claim.
        lease_until: When its lease ends; after its end it has one as long as a notification is due.
        held: Whether its lease has not run out.
        tries: How many processes have died on its present step.
        sweep_id: Its sweep; None before that is submitted.
        sweep_status: Of that; None if it is not there.
        sweep_reason: Why that stands so.
        sweep_queued: Whether workers run it.
        baseline_id: The sweep that it was compared with.
        verdict: What came of it; None before its end.
        why: Sentences.
        notified_at: When its notification was sent.
        notify_tries: How often that was tried.
        notify_error: Why it was not sent.
        started_at: When its sweep was submitted.
        finished_at: When it ended.
        schedule: The name of its schedule.
        session: The name of that one's session.
        file: The sweep file.
        folder: Where it is carried out.
        cron: When it fires.
        tz: In which time zone.
        queued: Whether its sweeps are for workers.
        baseline: The name of what it is compared with, or `last`.
        margin: By metric the loss that would matter.
        notify: Who is notified.
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
        """The id of its sweep, of a fire whose sweep was submitted."""
        assert self.sweep_id is not None, "its sweep was submitted"
        return self.sweep_id

    @property
    def next_step(self) -> Step | None:
        """What it needs next; None if nothing can be done about it just now."""
        return next_step(
            status=self.status,
            lease_until=self.lease_until,
            sweep_status=self.sweep_status,
            sweep_reason=self.sweep_reason,
            sweep_queued=self.sweep_queued,
        )


@frozen
class Due:
    """What `make_due` did about a schedule that was due.

    Attributes:
        schedule: Its name.
        fire_at: The fire that was made; None if there is one already, or if all were skipped.
        missed: How many others there would have been.
        problem: Why nothing could be made; None if it could.
    """

    schedule: str
    fire_at: float | None
    missed: int
    problem: str | None = None


# Schedules


@frozen
class NewSchedule:
    """A schedule that is to be kept.

    Attributes:
        name: Its name.
        session: The name of its session.
        file: The absolute path of its sweep file.
        folder: Where its fires are carried out.
        cron: When it fires: five fields.
        tz: In which time zone.
        missed: Whether fires that were missed are made up for once, or skipped.
        queued: Whether its sweeps are for workers.
        baseline: The name of what it is compared with, or `last`.
        margin: By metric the loss that would matter.
        notify: Who is notified.
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
    """A schedule that is kept, as it was when it was read.

    Attributes:
        id: Its id.
        session_id: Its session.
        status: active or paused.
        next_at: Its next fire; None while it is paused.
        created_at: When it was made.
        now: When it was read, on the database's clock.
    """

    id: str
    session_id: str
    status: str
    next_at: float | None
    created_at: float
    now: float


def add_schedule(database: Database, new: NewSchedule) -> Schedule:
    """Keep a new schedule. Raises ConflictError if its name is taken."""
    with database.write() as connection:
        if connection.scalar(sa.select(schedules.c.id).where(schedules.c.name == new.name)) is not None:
            raise ConflictError(
                f"there is a schedule {new.name!r} already; `wtb schedule remove {shlex.quote(new.name)}` removes it"
            )
        mine = sa.select(sessions.c.id).where(sessions.c.name == new.session, *in_scope(connection, sessions))
        session = mine.scalar_subquery()
        given = {key: value for key, value in vars(new).items() if key != "session"}
        insert = schedules.insert().values(given)
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
    """Make no fires of a schedule any more. Returns True if this call made the change."""
    return _set_status(database, schedule_id, "paused")


def resume_schedule(database: Database, schedule_id: str) -> bool:
    """Make fires of a schedule again, from now on: those of its pause are skipped. Returns True if it was paused."""
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
        gone = connection.execute(fires.delete().where(fires.c.schedule_id == schedule_id)).rowcount
        connection.execute(schedules.delete().where(schedules.c.id == schedule_id))
    return gone


# Making fires


def make_due(database: Database) -> list[Due]:
    """Make the fires that are due: of each schedule at most one.

    A fire that nobody has begun yet stands for those that would follow it. A next fire that is further away than the
    cron text says was written while the clock was ahead, and is set right first.
    """
    ripe = sa.select(schedules, now().label("now")).where(schedules.c.status == "active", schedules.c.next_at <= now())
    due_fires = []
    _set_right(database)
    with database.write() as connection:
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
    """Return whether the next fire of an active schedule is later than its cron text says, by the database's clock."""
    if schedule["status"] != "active" or schedule["next_at"] is None or schedule["next_at"] <= schedule["now"]:
        return False
    try:
        return bool(schedule["next_at"] > next_after(schedule["cron"], zone_of(schedule["tz"]), schedule["now"]))
    except InputError:  # a time zone that this machine does not know
        return False


def _set_right(database: Database) -> None:
    """Recompute next fires that a clock which was ahead has put too late, so that they fire again from now on."""
    active = sa.select(schedules, now().label("now")).where(schedules.c.status == "active", schedules.c.next_at > now())
    with database.read() as connection:
        misplaced = [row["id"] for row in fetch_rows(connection, active) if is_misplaced(row)]
    for id in misplaced:
        with database.write() as connection:
            row = fetch_row(connection, active.where(schedules.c.id == id).with_for_update(of=schedules))
            if row is not None and is_misplaced(row):
                next_at = next_after(row["cron"], zone_of(row["tz"]), row["now"])
                connection.execute(schedules.update().where(schedules.c.id == id).values(next_at=next_at))


def make_manual(database: Database, schedule_id: str) -> float:
    """Make a fire that no clock asked for. Returns when: now."""
    new = fires.insert().values(schedule_id=schedule_id, fire_at=now(), status="due", manual=True)
    with database.write() as connection:
        return float(connection.execute(new.returning(fires.c.fire_at)).scalar_one())


# Carrying fires out


def open_fires(database: Database, schedule_id: str | None = None) -> list[Fire]:
    """Return fires that have not ended or whose notification is due, the oldest first."""
    query = _fires().where(_OPEN).order_by(fires.c.fire_at)
    return [Fire(**row) for row in database.rows(query.where(*equal({fires.c.schedule_id: schedule_id})))]


def _fires() -> sa.Select[Any]:
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


def claim(database: Database, fire: Fire) -> Claim | None:
    """Take a fire that nobody carries out; None where somebody was quicker, or where nothing can be done about it.

    One whose processes died TRIES times is given up: it has failed.
    """
    step = fire.next_step
    if step is None:
        return None
    free = sa.or_(fires.c.lease_until.is_(None), is_over(fires.c.lease_until))
    found = fires.update().where(
        *_key(fire.schedule_id, fire.fire_at), fires.c.token == fire.token, fires.c.status == fire.status, free
    )
    if fire.tries >= TRIES:
        database.execute(_given_up(found, fire, step))
        return None
    taken = found.values(token=fires.c.token + 1, lease_until=now() + LEASE_S, tries=fires.c.tries + 1)
    if step == "submit":
        taken = taken.values(status="starting")
    with database.write() as connection:
        if not connection.execute(taken).rowcount:
            return None
    return Claim(fire.schedule_id, fire.fire_at, fire.token + 1)


def _given_up(found: sa.Update, fire: Fire, step: str) -> sa.Update:
    """Have the statement that finds a fire end it."""
    doing = {
        "submit": "began its sweep",
        "run": "ran its sweep",
        "judge": "judged its sweep",
        "notify": "sent its notification",
    }
    why = f"its process died {TRIES} times while it {doing[step]}"
    if step == "notify":
        return found.values(lease_until=None, notify_error=why)
    until = now() if fire.notify else None
    reasons = [*(fire.why or []), why]
    ended = found.values(status="failed", verdict="failed", why=reasons, finished_at=now())
    return ended.values(lease_until=until, tries=0)


def find_fire(database: Database, claimed: Claim) -> Fire | None:
    """A fire with its schedule's settings and its sweep's status; None where it is not this claim's any more."""
    row = database.row(_fires().where(*_of(claimed)))
    return None if row is None else Fire(**row)


def renew(database: Database, claimed: Claim) -> bool:
    """Renew the lease of a fire. Returns True if the claim still has it, and something is left to do."""
    held = fires.update().where(*_of(claimed), fires.c.lease_until.is_not(None))
    return database.execute(held.values(lease_until=now() + LEASE_S)) > 0


def release(database: Database, claimed: Claim, *, after: float = 0.0, died: bool = False) -> None:
    """Release a fire. after: seconds for which nobody else may claim it. died: that used up one of its tries."""
    held = fires.update().where(*_of(claimed), fires.c.lease_until.is_not(None))
    database.execute(held.values(lease_until=now() + after, tries=fires.c.tries if died else 0))


def mark_submitted(connection: sa.Connection, claimed: Claim, sweep_id: str) -> None:
    """Note a fire's sweep, within the transaction that submits it. Raises ConflictError where it is lost."""
    query = fires.update().where(*_of(claimed), fires.c.sweep_id.is_(None), fires.c.status == "starting")
    values = {"sweep_id": sweep_id, "status": "running", "started_at": now(), "tries": 0}
    if not connection.execute(query.values(**values)).rowcount:
        raise ConflictError("another process carries out this fire, or its schedule was removed: nothing was submitted")


def end_fire(
    database: Database, claimed: Claim, verdict: str, why: Sequence[str], *, baseline: str | None, notify: bool
) -> bool:
    """End a fire. notify: a notification is to be sent. Returns False if the claim was lost."""
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


def record_notification(database: Database, claimed: Claim, error: str | None, *, again: bool = False) -> None:
    """Record that a notification was sent, or why it was not. again: it is to be tried once more."""
    tried = fires.update().where(*_of(claimed)).values(notify_error=error)
    if error is None:
        tried = tried.values(notified_at=now())
    database.execute(tried if again else tried.values(lease_until=None))


def _change(database: Database, claimed: Claim, **values: Any) -> bool:
    return database.execute(fires.update().where(*_of(claimed)).values(**values)) > 0


def _key(schedule_id: str, fire_at: float) -> tuple[sa.ColumnElement[bool], ...]:
    return fires.c.schedule_id == schedule_id, fires.c.fire_at == fire_at


def _of(claimed: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    return *_key(claimed.schedule_id, claimed.fire_at), fires.c.token == claimed.token


# Looking back


def fire_rows(database: Database, schedule_id: str, limit: int | None = None) -> list[Fire]:
    """Return fires of a schedule, the newest first."""
    query = _fires().where(fires.c.schedule_id == schedule_id).order_by(fires.c.fire_at.desc()).limit(limit)
    return [Fire(**row) for row in database.rows(query)]


def fire_of_sweep(database: Database, sweep_id: str) -> Fire | None:
    """Return the fire that ran a sweep; None if no schedule did."""
    row = database.row(_fires().where(fires.c.sweep_id == sweep_id))
    return None if row is None else Fire(**row)


def last_ended(database: Database, schedule_id: str, *, well: bool = False) -> Fire | None:
    """Of the fires that have ended the one that was begun last; None where there is none.

    One that was interrupted and ends late hides none that was begun after it. well: of those that ended well, and whose
    sweep is there still, complete but for few cells that were lost to providers.
    """
    begun = sa.func.coalesce(fires.c.started_at, fires.c.finished_at)
    query = _fires().where(fires.c.schedule_id == schedule_id, fires.c.status.in_(_ENDED))
    if well:
        lost = cells.c.failure["kind"].as_string() == "provider"
        count = sa.select(sa.func.count()).where(cells.c.sweep_id == fires.c.sweep_id, cells.c.status == "failed", lost)
        is_whole = count.scalar_subquery() <= MOST_LOST * sweeps.c.cells
        query = query.where(fires.c.verdict.not_in(BAD), sweeps.c.status == "completed", is_whole)
    last = sa.case((is_ahead(begun), 1), else_=0)  # of a clock that was ahead: no later than others
    row = database.row(query.order_by(last, begun.desc()).limit(1))
    return None if row is None else Fire(**row)
