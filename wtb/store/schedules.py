"""Schedules and their fires: the statements of whoever makes fires, carries them out or looks at them.

A fire is carried out by whoever holds its lease, under a token: what comes from a process that lost it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from wtb.core.cron import BAD, TRIES, due, next_after, next_step, zone_of
from wtb.core.errors import ConflictError, InputError, did_you_mean
from wtb.core.ids import new_id
from wtb.store.bulk import Row, equal, fetch_row, fetch_rows, insert_missing
from wtb.store.database import Database
from wtb.store.runs.slots import LEASE_S
from wtb.store.tables.schema import fires, now, schedules, sessions, sweeps

_ENDED = ("judged", "failed")
_OPEN = sa.or_(fires.c.status.in_(("due", "starting", "running")), fires.c.lease_until.is_not(None))


@dataclass(frozen=True)
class Claim:
    """A fire that one process carries out."""

    schedule_id: str
    fire_at: float
    token: int


# Schedules


def add_schedule(database: Database, row: Row) -> Row:
    """Keep a new schedule, with the session's name as `session`. Raises ConflictError where its name is taken."""
    with database.write() as connection:
        if connection.scalar(sa.select(schedules.c.id).where(schedules.c.name == row["name"])) is not None:
            raise ConflictError(
                f"there is a schedule {row['name']!r} already; `wtb schedule remove {row['name']}` removes it"
            )
        session = sa.select(sessions.c.id).where(sessions.c.name == row["session"]).scalar_subquery()
        values = {key: value for key, value in row.items() if key != "session"}
        values |= {"id": new_id(), "session_id": session, "status": "active", "next_at": _next(connection, row)}
        connection.execute(schedules.insert().values(values))
    return find_schedule(database, row["name"])


def find_schedule(database: Database, name: str) -> Row:
    """A schedule with the name of its `session`. Raises InputError with a near match."""
    with database.read() as connection:
        row = fetch_row(connection, _schedules().where(schedules.c.name == name))
        if row is not None:
            return row
        near = did_you_mean(name, connection.scalars(sa.select(schedules.c.name).limit(1000)))
    raise InputError(f"there is no schedule {name!r}{near}; `wtb schedule list` shows all")


def schedule_rows(database: Database, session: str | None = None) -> list[Row]:
    """Schedules by name, those of one session or all."""
    return database.rows(_schedules().order_by(schedules.c.name).where(*equal({sessions.c.name: session})))


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
        next_at = _next(connection, row) if to == "active" else None
        connection.execute(schedules.update().where(*mine).values(status=to, next_at=next_at))
    return True


def _next(connection: sa.Connection, row: Row) -> float:
    return next_after(row["cron"], zone_of(row["tz"]), float(connection.scalar(sa.select(now())) or 0.0))


def remove_schedule(database: Database, schedule_id: str) -> int:
    """Delete a schedule and its fires; their sweeps stay. Returns how many fires it had."""
    with database.write() as connection:
        gone = connection.execute(fires.delete().where(fires.c.schedule_id == schedule_id)).rowcount
        connection.execute(schedules.delete().where(schedules.c.id == schedule_id))
    return gone


# Making fires


def make_due(database: Database) -> list[Row]:
    """Make the fires that are due: of each schedule at most one. Returns schedule, fire_at (or None), missed, problem.

    A fire that nobody has begun yet stands for those that would follow it.
    """
    ripe = sa.select(schedules, now().label("now")).where(schedules.c.status == "active", schedules.c.next_at <= now())
    made = []
    with database.write() as connection:
        for row in fetch_rows(connection, ripe.with_for_update(skip_locked=True)):
            try:
                found = due(row["cron"], zone_of(row["tz"]), row["next_at"], row["now"], row["missed"])
            except InputError as error:  # this machine knows fewer time zones than that of `wtb schedule add`
                made.append({"schedule": row["name"], "fire_at": None, "missed": 0, "problem": str(error)})
                continue
            waits = sa.select(fires.c.fire_at).where(fires.c.schedule_id == row["id"], fires.c.status == "due").limit(1)
            fire_at, missed = found.fire_at, found.missed
            if fire_at is not None and connection.execute(waits).first() is not None:
                fire_at, missed = None, missed + 1
            if fire_at is not None:
                reasons = [f"{missed:,} {'fire' if missed == 1 else 'fires'} before it were missed"] if missed else None
                new = {"schedule_id": row["id"], "fire_at": fire_at, "status": "due", "why": reasons}
                insert_missing(connection, fires, [new])
            connection.execute(schedules.update().where(schedules.c.id == row["id"]).values(next_at=found.next_at))
            made.append({"schedule": row["name"], "fire_at": fire_at, "missed": missed, "problem": None})
    return made


def make_manual(database: Database, schedule_id: str) -> float:
    """Make a fire that no clock asked for. Returns when: now."""
    new = fires.insert().values(schedule_id=schedule_id, fire_at=now(), status="due", manual=True)
    with database.write() as connection:
        return float(connection.execute(new.returning(fires.c.fire_at)).scalar_one())


# Carrying fires out


def open_fires(database: Database, schedule_id: str | None = None) -> list[Row]:
    """Return fires that have not ended or whose notification is due, the oldest first, as `find_fire` does.

    With `held`: whether somebody carries it out just now.
    """
    query = _fires().where(_OPEN).order_by(fires.c.fire_at)
    return database.rows(query.where(*equal({fires.c.schedule_id: schedule_id})))


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
            sa.func.coalesce(fires.c.lease_until > now(), sa.false()).label("held"),
        )
        .join(schedules, schedules.c.id == fires.c.schedule_id)
        .join(sessions, sessions.c.id == schedules.c.session_id)
        .outerjoin(sweeps, sweeps.c.id == fires.c.sweep_id)
    )


def claim(database: Database, fire: Row) -> Claim | None:
    """Take a fire that nobody carries out; None where somebody was quicker, or where nothing can be done about it.

    One whose processes died TRIES times is given up: it has failed.
    """
    step = next_step(fire)
    if step is None:
        return None
    free = sa.or_(fires.c.lease_until.is_(None), fires.c.lease_until < now())
    found = fires.update().where(*_mine(fire), fires.c.token == fire["token"], fires.c.status == fire["status"], free)
    if fire["tries"] >= TRIES:
        database.execute(found.values(_given_up(fire, step)))
        return None
    values: Row = {"token": fires.c.token + 1, "lease_until": now() + LEASE_S, "tries": fires.c.tries + 1}
    if step == "submit":
        values["status"] = "starting"
    with database.write() as connection:
        if not connection.execute(found.values(values)).rowcount:
            return None
    return Claim(fire["schedule_id"], fire["fire_at"], fire["token"] + 1)


def _given_up(fire: Row, step: str) -> Row:
    doing = {
        "submit": "began its sweep",
        "run": "ran its sweep",
        "judge": "judged its sweep",
        "tell": "sent its notification",
    }
    why = f"its process died {TRIES} times while it {doing[step]}"
    if step == "tell":
        return {"lease_until": None, "notify_error": why}
    until = now() if fire["notify"] else None
    reasons = [*(fire["why"] or []), why]
    ended = {"status": "failed", "verdict": "failed", "why": reasons, "finished_at": now()}
    return {**ended, "lease_until": until, "tries": 0}


def find_fire(database: Database, claimed: Claim) -> Row | None:
    """A fire with its schedule's settings and its sweep's status; None where it is not this claim's any more."""
    return database.row(_fires().where(*_of(claimed)))


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
    database: Database, claimed: Claim, verdict: str, why: Sequence[str], *, baseline: str | None, tell: bool
) -> bool:
    """End a fire. tell: a notification is to be sent. Returns False if the claim was lost."""
    values = {
        "status": "failed" if verdict == "failed" else "judged",
        "verdict": verdict,
        "why": list(why),
        "baseline_id": baseline,
        "finished_at": now(),
        "tries": 0,
        **({} if tell else {"lease_until": None}),
    }
    return _change(database, claimed, **values)


def begin_telling(database: Database, claimed: Claim) -> bool:
    """Count a try to send the notification, before it is made."""
    return _change(database, claimed, notify_tries=fires.c.notify_tries + 1)


def end_telling(database: Database, claimed: Claim, error: str | None, *, again: bool = False) -> None:
    """Record that a notification was sent, or why it was not. again: it is to be tried once more."""
    ends: Row = {} if again else {"lease_until": None}
    outcome: Row = {"notified_at": now(), "notify_error": None} if error is None else {"notify_error": error}
    _change(database, claimed, **ends, **outcome)


def _change(database: Database, claimed: Claim, **values: Any) -> bool:
    return database.execute(fires.update().where(*_of(claimed)).values(**values)) > 0


def _mine(fire: Row) -> tuple[sa.ColumnElement[bool], ...]:
    return fires.c.schedule_id == fire["schedule_id"], fires.c.fire_at == fire["fire_at"]


def _of(claimed: Claim) -> tuple[sa.ColumnElement[bool], ...]:
    key = {"schedule_id": claimed.schedule_id, "fire_at": claimed.fire_at}
    return *_mine(key), fires.c.token == claimed.token


# Looking back


def fire_rows(database: Database, schedule_id: str, limit: int | None = None) -> list[Row]:
    """Fires of a schedule, the newest first, as `find_fire` gives them."""
    query = _fires().where(fires.c.schedule_id == schedule_id).order_by(fires.c.fire_at.desc()).limit(limit)
    return database.rows(query)


def last_ended(database: Database, schedule_id: str, *, well: bool = False) -> Row | None:
    """Of the fires that have ended the one that was begun last, as `find_fire` gives it; None where there is none.

    One that was interrupted and ends late hides none that was begun after it. well: of those that ended well, and whose
    sweep is there still.
    """
    begun = sa.func.coalesce(fires.c.started_at, fires.c.finished_at)
    query = _fires().where(fires.c.schedule_id == schedule_id, fires.c.status.in_(_ENDED))
    if well:
        query = query.where(fires.c.verdict.not_in(BAD), sweeps.c.id.is_not(None))
    return database.row(query.order_by(begun.desc()).limit(1))
