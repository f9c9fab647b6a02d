"""Commands of schedules: sweeps that run by the clock, each compared with a baseline."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import existing_backend, open_backend, open_context, prints_to_stderr, put, say
from wtb.cli.log_format import log_as_json
from wtb.cli.output import present, present_all
from wtb.cli.progress import progress_display
from wtb.cli.results.compare import Margin, read_margin
from wtb.core.cron import BAD, in_words
from wtb.core.documents.administration import OneScheduleDocument, ScheduleHistoryDocument
from wtb.core.texts import plural
from wtb.display.text.admin import schedules as render
from wtb.operations.schedules import fire as firing
from wtb.operations.schedules import history as history_operations
from wtb.operations.schedules import schedules
from wtb.store import schedules as store

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


class Payload(StrEnum):
    """The form of what a URL is sent."""

    json = "json"
    slack = "slack"
    teams = "teams"


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
    payload: Annotated[
        Payload | None, typer.Option("--payload", help="What the URL is sent \\[default: by its host].")
    ] = None,
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
    """Run a sweep by the clock.

    It runs from this folder, by the scheduler or by `wtb schedule run-due`.

    Examples: wtb schedule add nightly sweep.yaml --cron '0 3 * * *' --baseline last  |  wtb schedule add hourly
    sweep.yaml --cron '0 * * * *' --baseline main --notify ./tell.sh
    """
    with prints_to_stderr():
        schedule = schedules.add_schedule(
            open_context(db, create=True),
            name,
            file,
            cron=cron,
            tz=tz,
            baseline=baseline,
            margin=read_margin(margin),
            notify=notify,
            allow_private=allow_private,
            payload=None if payload is None else payload.value,
            missed=missed.value,
            queued=queued,
            session=session,
        )
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
    backend = existing_backend(db)
    rows = [] if backend is None else backend.call(schedules.list_schedules, session)
    nothing = "there are no schedules yet; `wtb schedule add NAME FILE --cron TEXT` makes one"
    present_all("schedules", rows, render.listed, format, output, nothing)


def show(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Show a schedule: when it runs next, what it runs, and how the last runs ended.

    Example: wtb schedule show nightly
    """
    document: OneScheduleDocument = {"schedule": open_backend(db).call(schedules.show_schedule, name)}
    present(document, render.one, format, output)


def pause(name: Name, db: options.Db = None) -> None:
    """Make no fires until it is resumed; what already runs continues.

    Example: wtb schedule pause nightly
    """
    status = open_backend(db).call(schedules.pause_schedule, name)
    put(f"schedule {name}: paused" if status.changed else f"schedule {name}: paused already")


def resume(name: Name, db: options.Db = None) -> None:
    """Fire again from now on; what its pause left out is skipped.

    Example: wtb schedule resume nightly
    """
    status = open_backend(db).call(schedules.resume_schedule, name)
    active = "active" if status.changed else "active already"
    put(f"schedule {name}: {active}, next {render.moment(status.next_at, status.tz)}")


def remove(name: Name, db: options.Db = None) -> None:
    """Remove a schedule with its history.

    The sweeps of its fires stay.

    Example: wtb schedule remove nightly
    """
    count = open_backend(db).call(schedules.remove_schedule, name)
    put(f"schedule {name}: removed, with {plural(count, 'fire')}; their sweeps stay")


def run_now(
    name: Name, db: options.Db = None, format: options.Show = options.Format.table, output: options.Output = None
) -> None:
    """Fire at once, whatever the clock says, and wait for it where workers do not run it.

    Exits with 1 where it is worse than the baseline or has failed.

    Example: wtb schedule run-now nightly
    """
    fired = schedules.run_now(open_context(db), name)
    present(fired, render.fired, format, output)
    raise typer.Exit(1 if fired["fire"]["verdict"] in BAD else 0)


def history(
    name: Name,
    metric: Annotated[str | None, typer.Option("--metric", help="By which metric \\[default: the first].")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Only the last N fires.")] = 60,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show what the fires of a schedule came to, as a chart and a list, with where code changed.

    Examples: wtb schedule history nightly  |  wtb schedule history nightly --metric f1
    """

    def drawn(document: ScheduleHistoryDocument, width: int, color: bool) -> str:
        text = render.history(document, width, color)
        shows_all = output is not None or (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        return text if shows_all else render.plain(text)

    found = open_backend(db).call(history_operations.history, name, metric=metric, limit=limit)
    present(found, drawn, format, output)


def check(name: Name, db: options.Db = None) -> None:
    """Exit with 1 where the last fire was worse or failed, or where a fire is overdue, and say why.

    Example: wtb schedule check nightly
    """
    found = open_backend(db).call(history_operations.check_schedule, name)
    put(f"schedule {name}: {found.sentence}")
    raise typer.Exit(1 if found.is_wrong else 0)


def run_due(db: options.Db = None) -> None:
    """Run the schedules that are due: for a line of crontab.

    Any number of them may run at once. It says nothing where there is nothing to do.

    Example: wtb schedule run-due
    """
    schedules.run_due(open_context(db))


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
        log_as_json("scheduler")  # which hands its stderr on
    context = replace(open_context(None), report=say if quiet else lambda text: None)
    with progress_display(quiet) as show:
        firing.carry_out(context, store.Claim(schedule, at, token), progress=show, signals=not quiet)


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
