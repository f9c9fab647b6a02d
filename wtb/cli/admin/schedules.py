"""Commands of schedules: sweeps that run by the clock, each compared with a baseline."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.console import existing_database, open_database, prints_to_stderr, put, say
from wtb.cli.output import present, present_all
from wtb.cli.progress import watch
from wtb.cli.results.compare import Margin, read_margin, with_margin
from wtb.config import webhooks
from wtb.config.stack_file import broker_url
from wtb.core.cron import BAD, check_cron, check_name, in_words, zone_of
from wtb.core.errors import InputError
from wtb.core.serialization.plain_json import iso
from wtb.core.texts import plural
from wtb.display.text.admin import schedules as render
from wtb.operations.schedules import fire as operations
from wtb.operations.schedules import history as history_operations
from wtb.store import schedules
from wtb.store.limits import sessions
from wtb.store.read import baselines

if TYPE_CHECKING:
    from wtb.execution.runtime.sweep_run import Ended, SweepRun
    from wtb.planning.binding import Bound
    from wtb.store.database import Database


Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


class Missed(StrEnum):
    """What happens to fires that were missed."""

    once = "once"
    skip = "skip"


def add(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep file; read anew at each fire.")],
    cron: Annotated[str, typer.Option("--cron", metavar="TEXT", help="When: five fields, such as '0 3 * * *'.")],
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone, such as Europe/Berlin.")] = "UTC",
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME", help="To compare with; last: its last good fire.")
    ] = None,
    margin: Margin = None,
    notify: Annotated[
        str | None,
        typer.Option("--notify", metavar="URL|COMMAND", help="Notified of regressions, failures and recoveries."),
    ] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="The URL may lead to an address that is not public.")
    ] = False,
    missed: Annotated[
        Missed, typer.Option("--missed", help="Missed times: make up for them once, or skip them.")
    ] = Missed.once,
    queued: Annotated[
        bool | None,
        typer.Option(
            "--queued/--local", help="Workers run it, or the scheduler \\[default: by whether a broker is named]."
        ),
    ] = None,
    session: options.Session = None,
    db: options.Db = None,
) -> None:
    """Run a sweep by the clock. It runs from this folder, by the scheduler or by `wtb schedule run-due`.

    Examples: wtb schedule add nightly sweep.yaml --cron '0 3 * * *' --baseline last  |  wtb schedule add hourly
    sweep.yaml --cron '0 * * * *' --baseline main --notify ./tell.sh
    """
    check_name(name)
    row: dict[str, Any] = {"name": name, "cron": check_cron(cron), "tz": zone_of(tz).key, "missed": missed.value}
    row["margin"] = read_margin(margin)
    row["notify"] = {} if notify is None else webhooks.read_target(notify, allow_private=allow_private)
    database = open_database(db, create=True)
    if queued and database.is_sqlite:
        raise InputError(f"--queued needs workers, which need PostgreSQL, and the database is {database.shown_url}")
    with prints_to_stderr():
        prepared = with_margin(operations.prepared_for(database, file, session), row["margin"])
    row["session"] = sessions.session_name(prepared.bound.spec.session)
    sessions.check_open(database, row["session"])
    if baseline is not None and baseline != baselines.LAST:
        baselines.named_baseline(database, row["session"], baseline)
    row |= {"file": str(file.absolute()), "folder": str(Path.cwd()), "baseline": baseline}
    row["queued"] = (broker_url() is not None and not database.is_sqlite) if queued is None else queued
    schedule = schedules.add_schedule(database, row)
    put(f"schedule {name}: {in_words(schedule['cron'])} ({tz}), first {render.moment(schedule['next_at'], tz)}")
    if not schedule["queued"]:
        say("something has to start it: a line of crontab that runs `wtb schedule run-due` here, or `wtb up`")


def list_(
    session: options.Session = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List schedules with their next and last fires.

    Examples: wtb schedule list  |  wtb schedule list --format json
    """
    database = existing_database(db)
    rows = [] if database is None else [_document(database, row) for row in schedules.schedule_rows(database, session)]
    nothing = "there are no schedules yet; `wtb schedule add NAME FILE --cron TEXT` makes one"
    present_all("schedules", rows, render.listed, format, output, nothing)


def show(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Show a schedule: when it runs next, what it runs, and how the last runs ended.

    Example: wtb schedule show nightly
    """
    database = open_database(db)
    present({"schedule": _document(database, schedules.find_schedule(database, name))}, render.one, format, output)


def pause(name: Name, db: options.Db = None) -> None:
    """Make no fires until it is resumed; what runs already goes on.

    Example: wtb schedule pause nightly
    """
    database = open_database(db)
    changed = schedules.pause_schedule(database, schedules.find_schedule(database, name)["id"])
    put(f"schedule {name}: paused" if changed else f"schedule {name}: paused already")


def resume(name: Name, db: options.Db = None) -> None:
    """Fire again from now on; what its pause left out is skipped.

    Example: wtb schedule resume nightly
    """
    database = open_database(db)
    changed = schedules.resume_schedule(database, schedules.find_schedule(database, name)["id"])
    row = schedules.find_schedule(database, name)
    put(
        f"schedule {name}: {'active' if changed else 'active already'}, next {render.moment(row['next_at'], row['tz'])}"
    )


def remove(name: Name, db: options.Db = None) -> None:
    """Remove a schedule with its history. The sweeps of its fires stay.

    Example: wtb schedule remove nightly
    """
    database = open_database(db)
    count = schedules.remove_schedule(database, schedules.find_schedule(database, name)["id"])
    put(f"schedule {name}: removed, with {plural(count, 'fire')}; their sweeps stay")


def run_now(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Fire at once, whatever the clock says, and wait for it where workers do not run it.

    Exits with 1 where it is worse than the baseline or has failed.

    Example: wtb schedule run-now nightly
    """
    from wtb_scheduler.fires import Fires

    database = open_database(db)
    schedule = schedules.find_schedule(database, name)
    if not Path(schedule["folder"]).is_dir():
        raise InputError(f"schedule {name}: its folder {schedule['folder']} is not there")
    fire_at = schedules.make_manual(database, schedule["id"])
    fires = Fires(database, say, quiet=False)
    try:
        fires.start(_one_of(schedules.fire_rows(database, schedule["id"]), fire_at))
        fires.wait()
    except KeyboardInterrupt:
        fires.end()
        raise
    row = _one_of(schedules.fire_rows(database, schedule["id"]), fire_at)
    found = {
        "version": history_operations.VERSION,
        "schedule": name,
        "tz": schedule["tz"],
        "fire": history_operations.fire_document(row),
    }
    present(found, render.fired, format, output)
    if row["verdict"] is None:
        say("workers run it, and a scheduler judges it" if row["queued"] else "a scheduler goes on with it")
    raise typer.Exit(1 if row["verdict"] in BAD else 0)


def _one_of(rows: list[dict[str, Any]], fire_at: float) -> dict[str, Any]:
    return next(row for row in rows if row["fire_at"] == fire_at)


def history(
    name: Name,
    metric: Annotated[str | None, typer.Option("--metric", help="By which metric \\[default: the first].")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="Only the last N fires.")] = 60,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show what the fires of a schedule came to, as a chart and a list, with where code changed.

    Examples: wtb schedule history nightly  |  wtb schedule history nightly --metric f1
    """

    def drawn(document: Mapping[str, Any], width: int, color: bool) -> str:
        text = render.history(document, width, color)
        shows_all = output is not None or (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        return text if shows_all else render.plain(text)

    database = open_database(db)
    present(
        history_operations.history(database, schedules.find_schedule(database, name), metric, limit),
        drawn,
        format,
        output,
    )


def check(name: Name, db: options.Db = None) -> None:
    """Exit with 1 where the last fire was worse or failed, or where a fire is overdue, and say why.

    Example: wtb schedule check nightly
    """
    database = open_database(db)
    wrong, sentence = history_operations.problems(database, schedules.find_schedule(database, name))
    put(f"schedule {name}: {sentence}")
    raise typer.Exit(1 if wrong else 0)


def run_due(db: options.Db = None) -> None:
    """Run the schedules that are due: for a line of crontab.

    Any number of them may run at once. It says nothing where there is nothing to do.

    Example: wtb schedule run-due
    """
    from wtb_scheduler.fires import Fires

    fires = Fires(open_database(db), say)
    try:
        fires.finish()
    except KeyboardInterrupt:
        fires.end()
        raise


def fire(
    schedule: Annotated[str, typer.Argument(metavar="ID")],
    at: Annotated[float, typer.Argument(metavar="TIME")],
    token: Annotated[int, typer.Argument(metavar="TOKEN")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Carry out a fire that a scheduler has claimed. Only schedulers start this.

    Example: wtb schedule fire ID TIME TOKEN
    """
    if quiet:  # the next round goes on
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def work(run: SweepRun, bound: Bound) -> Ended:
        return _to_its_end(run) if quiet else watch(run, bound.spec.run.grace)

    operations.carry_out(
        open_database(None), schedules.Claim(schedule, at, token), work, say if quiet else lambda text: None
    )


def _to_its_end(run: SweepRun) -> Ended:
    run.start()
    while not run.wait(1.0):
        pass
    return run.finish()


def _document(database: Database, row: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("name", "status", "session", "file", "folder", "cron", "tz", "missed", "queued", "baseline", "margin")
    last = schedules.last_ended(database, row["id"]) or next(
        iter(schedules.fire_rows(database, row["id"], limit=1)), None
    )
    return {
        **{key: row[key] for key in kept},
        "notify": webhooks.shown(row["notify"]),
        "next_at": iso(row["next_at"]),
        "created_at": iso(row["created_at"]),
        "last": history_operations.fire_document(last) if last else None,
    }


SCHEDULE = {
    "add": add,
    "list": list_,
    "show": show,
    "pause": pause,
    "resume": resume,
    "remove": remove,
    "run-now": run_now,
    "history": history,
    "check": check,
    "run-due": run_due,
    "fire": fire,
}
