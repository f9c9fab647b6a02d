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
from wtb.cli.options import Margin, read_margin
from wtb.cli.output import present, present_all
from wtb.cli.progress import progress_display
from wtb.core.cron import BAD, in_words
from wtb.core.documents.administration import OneScheduleDocument, ScheduleHistoryDocument
from wtb.core.texts import plural
from wtb.features.schedules import fire as firing
from wtb.features.schedules import history as history_operations
from wtb.features.schedules import operations
from wtb.features.schedules import queries as store
from wtb.features.schedules import text as render

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]


class Payload(StrEnum):
    """The form of what a URL is sent."""

    json = "json"
    slack = "slack"
    teams = "teams"


class Missed(StrEnum):
    """The treatment of missed fires."""

    once = "once"
    skip = "skip"


def add(
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep file; read again at each fire.")],
    cron: Annotated[str, typer.Option("--cron", metavar="TEXT", help="When: five fields, such as '0 3 * * *'.")],
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone, such as Europe/Berlin.")] = "UTC",
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="NAME", help="The baseline; last: the last good fire.")
    ] = None,
    margin: Margin = None,
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify", metavar="URL|COMMAND", help="URL or command to notify of regressions, failures and recoveries."
        ),
    ] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="Allow a URL with a non-public address.")
    ] = False,
    payload: Annotated[
        Payload | None, typer.Option("--payload", help="Payload for the URL \\[default: by its host].")
    ] = None,
    missed: Annotated[
        Missed, typer.Option("--missed", help="Missed times: run once for all of them, or skip them.")
    ] = Missed.once,
    queued: Annotated[
        bool | None,
        typer.Option("--queued/--local", help="Run on workers or in the scheduler \\[default: workers with a broker]."),
    ] = None,
    session: options.Session = None,
    db: options.Db = None,
) -> None:
    """Run a sweep on a schedule.

    It runs from this folder, by the scheduler or by `wtb schedule run-due`.

    Examples: wtb schedule add nightly sweep.yaml --cron '0 3 * * *' --baseline last  |  wtb schedule add hourly
    sweep.yaml --cron '0 * * * *' --baseline main --notify ./notify.sh
    """
    with prints_to_stderr():
        schedule = operations.add_schedule(
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


def list_(session: options.Session = None, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List schedules with their next and last fires.

    Examples: wtb schedule list  |  wtb schedule list --format json
    """
    backend = existing_backend(db)
    rows = [] if backend is None else backend.call(operations.list_schedules, session)
    nothing = "there are no schedules yet; `wtb schedule add NAME FILE --cron TEXT` makes one"
    present_all("schedules", rows, render.listed, form, nothing)


def show(name: Name, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """Show a schedule: when it runs next, what it runs, and how the last runs ended.

    Example: wtb schedule show nightly
    """
    document: OneScheduleDocument = {"schedule": open_backend(db).call(operations.show_schedule, name)}
    present(document, render.schedule_details, form)


def pause(name: Name, db: options.Db = None) -> None:
    """Pause a schedule until it is resumed; running sweeps continue.

    Example: wtb schedule pause nightly
    """
    status = open_backend(db).call(operations.pause_schedule, name)
    put(f"schedule {name}: paused" if status.changed else f"schedule {name}: paused already")


def resume(name: Name, db: options.Db = None) -> None:
    """Resume a schedule; fires missed during its pause are skipped.

    Example: wtb schedule resume nightly
    """
    status = open_backend(db).call(operations.resume_schedule, name)
    active = "active" if status.changed else "active already"
    put(f"schedule {name}: {active}, next {render.moment(status.next_at, status.tz)}")


def remove(name: Name, db: options.Db = None) -> None:
    """Remove a schedule with its history.

    The sweeps of its fires stay.

    Example: wtb schedule remove nightly
    """
    count = open_backend(db).call(operations.remove_schedule, name)
    put(f"schedule {name}: removed, with {plural(count, 'fire')}; their sweeps stay")


def run_now(name: Name, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """Fire a schedule at once, and wait for its end if no workers run it.

    Exits with 1 if it is worse than the baseline or has failed.

    Example: wtb schedule run-now nightly
    """
    fired = operations.run_now(open_context(db), name)
    present(fired, render.fired, form)
    raise typer.Exit(1 if fired["fire"]["verdict"] in BAD else 0)


def history(
    name: Name,
    metric: Annotated[str | None, typer.Option("--metric", help="Metric \\[default: the first].")] = None,
    limit: Annotated[int, typer.Option("--limit", help="Only the last N fires.")] = 60,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Show the results of a schedule's fires as a chart and a list, and mark changes of code.

    Examples: wtb schedule history nightly  |  wtb schedule history nightly --metric f1
    """

    def drawn(document: ScheduleHistoryDocument, width: int, color: bool) -> str:
        text = render.history(document, width, color)
        shows_all = form.output is not None or (sys.stdout.encoding or "utf-8").lower().startswith("utf")
        return text if shows_all else render.plain(text)

    history_document = open_backend(db).call(history_operations.history, name, metric=metric, limit=limit)
    present(history_document, drawn, form)


def check(name: Name, db: options.Db = None) -> None:
    """Exit with 1 if the last fire was worse or failed, or if a fire is overdue, and print the reason.

    Example: wtb schedule check nightly
    """
    verdict = open_backend(db).call(history_operations.check_schedule, name)
    put(f"schedule {name}: {verdict.sentence}")
    raise typer.Exit(1 if verdict.is_wrong else 0)


def run_due(db: options.Db = None) -> None:
    """Run the schedules that are due, for example from crontab.

    Several may run at once. It prints nothing if no schedule is due.

    Example: wtb schedule run-due
    """
    operations.run_due(open_context(db))


def fire(
    schedule: Annotated[str, typer.Argument(metavar="ID")],
    at: Annotated[float, typer.Argument(metavar="TIME")],
    token: Annotated[int, typer.Argument(metavar="TOKEN")],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress to stderr.")] = False,
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
