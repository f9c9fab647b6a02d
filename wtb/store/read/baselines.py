"""Baselines: names of sweeps that later ones are compared with. A sweep that has one is kept."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from wtb.core.classes.frozen import frozen
from wtb.core.errors import ConflictError, InputError, NotFound, did_you_mean
from wtb.store.access.scope import in_scope
from wtb.store.bulk import fetch_row, insert_of
from wtb.store.database import Database
from wtb.store.events import add_event, of_sweep, subject
from wtb.store.housekeeping.retention import locked_sweep
from wtb.store.read.queries import find_sweep
from wtb.store.rows.results import ListedBaseline, StoredNights
from wtb.store.tables.schema import baselines, now, sessions, sweeps
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import NoiseFloorDocument


KEPT_FIRST, KEPT_LAST = 8, 60  # nights: the first may count as repeats of the reference, the last are tested
LAST = "last"  # of a schedule: its last fire that ended well, and so the name of no baseline


def check_name(name: str) -> None:
    """Raises InputError where a baseline must not have this name."""
    if not (0 < len(name.strip()) == len(name) <= 200 and name.isprintable()) or name == LAST:
        raise InputError(
            f"{name!r} cannot be the name of a baseline; expected 1 to 200 printable characters, not 'last'"
        )


def find_baseline(database: Database, session: str, name: str) -> SweepRow | None:
    """The sweep that is the baseline of this name in a session (by its name), as `find_sweep` gives it, or None."""
    query = _rows(sa.select(baselines.c.sweep_id)).where(sessions.c.name == session, baselines.c.name == name)
    query = query.where(*in_scope(database, baselines))
    found = database.scalar(query)
    return None if found is None else find_sweep(database, found)


def named_baseline(database: Database, session: str, name: str) -> SweepRow:
    """The same. Raises InputError where there is none, with a near match."""
    found = find_baseline(database, session, name)
    if found is not None:
        return found
    known = [row.name for row in baseline_rows(database, session)]
    near = did_you_mean(name, known)
    how = near or f"; `wtb baseline set {shlex.quote(name)} SWEEP` makes a finished sweep one"
    raise NotFound(f"there is no baseline {name!r} in session {session!r}{how}", kind="baseline")


@frozen
class Night:
    """A sweep that was compared with a baseline.

    Attributes:
        sweep_id: Its id.
        is_worse: Whether it was called worse.
        was_accepted: Whether it became the baseline, or is a fire of a schedule that ended well.
    """

    sweep_id: str
    is_worse: bool
    was_accepted: bool


@frozen
class Nights:
    """The nights of a baseline since its reference was set.

    Attributes:
        reference_id: The sweep that was set by hand, which does not move.
        baseline_id: The sweep that is the baseline now.
        repeats: Ids of repeats of the reference.
        nights: Those after it, the oldest first.
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
    """Return the nights of a row; of a new one with the repeats that its noise was measured by."""
    return nights or {"repeats": list(floor["sweeps"]) if floor else [], "nights": [], "count": 0}


def add_night(database: Database, session_id: str, name: str, night: Night) -> None:
    """Note that a sweep was compared with a baseline, and make it the baseline if it was accepted.

    The reference stays. A sweep counts once, however often it is compared. Only the last nights are kept.
    """
    with database.write() as connection:
        sweep = locked_sweep(connection, night.sweep_id)
        query = sa.select(baselines).where(*_named(session_id, name)).with_for_update()
        row = fetch_row(connection, query)
        if row is None or sweep is None:
            return
        stored = _stored(row["nights"], row["noise_floor"])
        others = [one for one in stored["nights"] if one[0] != night.sweep_id]
        stored["count"] += len(others) == len(stored["nights"])
        stored["nights"] = [*others[:KEPT_FIRST], *others[KEPT_FIRST:][-KEPT_LAST:], astuple(night)]
        values: dict[str, Any] = {"nights": stored}
        if night.was_accepted and row["sweep_id"] != night.sweep_id:
            reference = row["reference_id"] or row["sweep_id"]
            values |= {"sweep_id": night.sweep_id, "set_at": now(), "noise_floor": None, "reference_id": reference}
            add_event(connection, of_sweep(sweep), "baseline.set", {"name": name})
        connection.execute(baselines.update().where(*_named(session_id, name)).values(values))


def noise_floor(database: Database, sweep_id: str) -> NoiseFloorDocument | None:
    """What repeats of a sweep differ by, as it was measured for a baseline; None where nobody did."""
    query = sa.select(baselines.c.noise_floor).where(baselines.c.sweep_id == sweep_id)
    with database.read() as connection:
        found = connection.scalars(
            query.where(baselines.c.noise_floor.is_not(None)).order_by(baselines.c.set_at.desc())
        )
        return next(iter(found), None)


def baseline_rows(database: Database, session: str | None = None) -> list[ListedBaseline]:
    """Baselines by session and name: name, session, set_at, and of the sweep its id, name, status and finished_at."""
    query = _rows(
        sa.select(
            baselines.c.name,
            sessions.c.name.label("session"),
            baselines.c.set_at,
            baselines.c.sweep_id,
            baselines.c.noise_floor,
            baselines.c.reference_id,
            baselines.c.nights,
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
    """Make a sweep the baseline of this name in its session, and the reference of the nights after it.

    Args:
        database: The database.
        name: Of the baseline.
        sweep_id: The sweep.
        noise_floor: What its repeats differ by; without it a sweep that is the baseline already keeps its own.

    Returns:
        The id of the sweep that was the baseline before, if any.

    Raises:
        InputError: For a name that cannot be one.
        ConflictError: If the sweep is being deleted.
    """
    check_name(name)
    with database.write() as connection:
        sweep = locked_sweep(connection, sweep_id)
        if sweep is None:
            raise ConflictError(f"sweep {sweep_id} is being deleted, or was")
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
    """Remove a baseline; its sweep stays. Returns that sweep's id, or None where there was no such baseline."""
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
    """Raises ConflictError where a sweep that is to be deleted is a baseline, naming it."""
    names = list(
        connection.scalars(sa.select(baselines.c.name).where(baselines.c.sweep_id == sweep_id).order_by("name"))
    )
    of_references = sa.select(baselines.c.name).where(baselines.c.reference_id == sweep_id).order_by("name")
    what = "baseline" if names else "reference of baseline"
    names = names or list(connection.scalars(of_references))
    if names:
        raise ConflictError(
            f"sweep {sweep_id} is the {what} {', '.join(map(repr, names))}: set that to another sweep, or let go of "
            f"it with `wtb baseline remove {shlex.quote(names[0])}`"
        )


def _named(session_id: str, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return baselines.c.session_id == session_id, baselines.c.name == name


def _rows(query: sa.Select[Any]) -> sa.Select[Any]:
    return query.select_from(baselines).join(sessions, sessions.c.id == baselines.c.session_id)
