"""Schedules: sweeps that run by the clock, each compared with a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from wtb.analysis.gates import check_gates
from wtb.config import webhooks
from wtb.config.stack_file import broker_url
from wtb.config.webhooks import Payload, Target, read_target
from wtb.core.arguments import AnyPath, AtLeastZero, LongText, checked
from wtb.core.cron import check_cron, check_name, zone_of
from wtb.core.documents.administration import FiredDocument, ScheduleDocument
from wtb.core.errors import InputError
from wtb.core.frozen import frozen
from wtb.core.serialization.plain_json import iso
from wtb.display.views.listed import fire_document
from wtb.features.schedules import queries as store
from wtb.features.schedules.children import Fires
from wtb.features.schedules.history import VERSION
from wtb.features.schedules.queries import NewSchedule, Schedule
from wtb.operations.auditing import audited
from wtb.operations.context import Context
from wtb.operations.payers import check_unbound
from wtb.operations.results.comparing import with_margin
from wtb.operations.running.preparing import check_threads, prepare_file
from wtb.store.access import sessions
from wtb.store.database import Database
from wtb.store.read import baselines
from wtb.store.read.baselines import Fire, fire_rows


def schedule_document(database: Database, schedule: Schedule) -> ScheduleDocument:
    """Return a schedule as a document."""
    last = store.last_ended(database, schedule.id) or next(iter(fire_rows(database, schedule.id, limit=1)), None)
    return {
        "name": schedule.name,
        "status": schedule.status,
        "session": schedule.session,
        "file": schedule.file,
        "folder": schedule.folder,
        "cron": schedule.cron,
        "tz": schedule.tz,
        "missed": schedule.missed,
        "queued": schedule.queued,
        "baseline": schedule.baseline,
        "margin": dict(schedule.margin),
        "notify": webhooks.describe_target(schedule.notify),
        "next_at": iso(schedule.next_at),
        "created_at": iso(schedule.created_at),
        "last": fire_document(last) if last else None,
    }


_UNBOUND = "has no schedule fire"


@checked
@audited
def add_schedule(
    context: Context,
    name: str,
    file: AnyPath,
    *,
    cron: str,
    tz: str = "UTC",
    baseline: str | None = None,
    margin: Mapping[str, AtLeastZero] | None = None,
    notify: LongText | None = None,
    allow_private: bool = False,
    payload: Payload | None = None,
    missed: Literal["once", "skip"] = "once",
    queued: bool | None = None,
    session: str | None = None,
) -> ScheduleDocument:
    """Run a sweep by the clock, from the working directory. Its file is read, and checked, now and at each fire.

    Args:
        context: Where.
        name: 1 to 64 letters, digits, `.`, `_` or `-`.
        file: The sweep file.
        cron: When: five fields, such as `0 3 * * *`.
        tz: A time zone, such as `Europe/Berlin`.
        baseline: The name of one to compare each fire with; `last` is its last good fire.
        margin: By metric a loss that would matter, before the file's.
        notify: A URL or a command that is notified of regressions, failures and recoveries.
        allow_private: Allow a URL with a non-public address.
        payload: The form of what the URL is sent: `json`, `slack` or `teams`; by default, the host decides.
        missed: Make up for missed times once, or skip them.
        queued: Workers run it, and not the scheduler; by default if there is a broker.
        session: In place of the file's.

    Returns:
        The schedule.

    Raises:
        InputError: With what is wrong.
        ConflictError: If there is one of that name, or if its session takes no sweeps.
        AccessDenied: If whoever adds it acts by a token with a budget.
    """
    file = Path(file)
    check_unbound(context, _UNBOUND)
    database = context.database
    check_name(name)
    cron, tz = check_cron(cron), zone_of(tz).key
    target: Target = {} if notify is None else read_target(notify, allow_private=allow_private, payload=payload)
    if queued and database.is_sqlite:
        raise InputError(f"the database is {database.shown_url}; expected PostgreSQL, because --submit needs workers")
    # Prepared once although nothing runs now, so that a wrong file is refused today and not at night.
    prepared = with_margin(prepare_file(file, session=session or context.session), margin or {})
    check_gates(database, prepared.bound.spec)
    check_threads(database, prepared.bound.spec)
    session = context.session_name(prepared.bound.spec.session)
    sessions.check_open(database, session)
    if baseline is not None and baseline != baselines.LAST:
        baselines.named_baseline(database, session, baseline)
    has_workers = broker_url(context.broker) is not None and not database.is_sqlite
    new = NewSchedule(
        name=name,
        session=session,
        file=str(file.absolute()),
        folder=str(Path.cwd()),
        cron=cron,
        tz=tz,
        missed=missed,
        queued=has_workers if queued is None else queued,
        baseline=baseline,
        margin=margin or {},
        notify=target,
    )
    return schedule_document(database, store.add_schedule(database, new))


@checked
def list_schedules(context: Context, session: str | None = None) -> list[ScheduleDocument]:
    """List schedules with their next and last fires.

    Args:
        context: Where they are.
        session: Only those of this session; None for that of the context, or for all if it has none.

    Returns:
        A document for each.
    """
    rows = store.all_schedules(context.database, session or context.session)
    return [schedule_document(context.database, row) for row in rows]


@checked
def show_schedule(context: Context, name: str) -> ScheduleDocument:
    """Return when a schedule runs next, what it runs, and how its last fire ended.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        Its document.

    Raises:
        InputError: If there is no such schedule.
    """
    return schedule_document(context.database, store.find_schedule(context.database, name))


@frozen
class ScheduleStatus:
    """The condition of a schedule after it was paused or resumed.

    Attributes:
        name: Its name.
        changed: Whether it stood otherwise before.
        next_at: Its next fire, in seconds since the epoch; None while it is paused.
        tz: Its time zone.
    """

    name: str
    changed: bool
    next_at: float | None
    tz: str


@checked
@audited
def pause_schedule(context: Context, name: str) -> ScheduleStatus:
    """Make no fires of a schedule until it is resumed; what runs already goes on.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        How it stands now, and whether it stood otherwise before.

    Raises:
        InputError: If there is no such schedule.
    """
    schedule = store.find_schedule(context.database, name)
    return ScheduleStatus(name, store.pause_schedule(context.database, schedule.id), None, schedule.tz)


@checked
@audited
def resume_schedule(context: Context, name: str) -> ScheduleStatus:
    """Make fires of a schedule again, from now on: what its pause left out is skipped.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        How it stands now, and whether it stood otherwise before.

    Raises:
        InputError: If there is no such schedule.
        AccessDenied: If whoever resumes it acts by a token with a budget.
    """
    check_unbound(context, _UNBOUND)
    changed = store.resume_schedule(context.database, store.find_schedule(context.database, name).id)
    schedule = store.find_schedule(context.database, name)
    return ScheduleStatus(name, changed, schedule.next_at, schedule.tz)


@checked
@audited
def remove_schedule(context: Context, name: str) -> int:
    """Remove a schedule with its history; the sweeps of its fires stay.

    Args:
        context: Where it is.
        name: Its name.

    Returns:
        How many fires it had.

    Raises:
        InputError: If there is no such schedule.
    """
    return store.remove_schedule(context.database, store.find_schedule(context.database, name).id)


@checked
@audited
def run_now(context: Context, name: str) -> FiredDocument:
    """Fire at once, whatever the clock says, and wait for it unless workers run it.

    Args:
        context: Where the schedule is.
        name: Its name.

    Returns:
        The fire, with its verdict where it has ended.

    Raises:
        InputError: If there is no such schedule, or no folder where it runs.
        AccessDenied: If whoever fires it acts by a token with a budget.
    """
    check_unbound(context, _UNBOUND)
    database = context.database
    schedule = store.find_schedule(database, name)
    # Here an error, while the scheduler leaves such a fire to others: somebody waits for this one.
    if not Path(schedule.folder).is_dir():
        raise InputError(f"schedule {name}: its folder {schedule.folder} is not there")
    fire_at = store.make_manual(database, schedule.id)

    def read() -> Fire:
        return next(fire for fire in fire_rows(database, schedule.id) if fire.fire_at == fire_at)

    with Fires(database, context.report, quiet=False) as fires:
        fires.start(read())
        fires.wait()
    fire = read()
    if fire.verdict is None:
        context.report("workers run it, and a scheduler judges it" if fire.queued else "a scheduler continues it")
    return {"version": VERSION, "schedule": name, "tz": schedule.tz, "fire": fire_document(fire)}


@checked
@audited
def run_due(context: Context) -> None:
    """Run the schedules that are due, and wait for them. Any number of processes may do so at once.

    Args:
        context: Where they are; what came of each is reported.
    """
    with Fires(context.database, context.report) as fires:
        fires.finish()
