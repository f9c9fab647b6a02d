"""Commands that hold up or end what is under way: pause, cancel, combination stop, breakpoint list, breakpoint set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm, open_backend, put, put_json, read_pair, say
from wtb.core.errors import InputError
from wtb.core.texts import plural, printable, took
from wtb.core.tree import combinations
from wtb.operations.control import breakpoints, pause_cancel
from wtb.operations.growth import stopping

if TYPE_CHECKING:
    from pathlib import Path

    from wtb.operations.control.breakpoints import Breakpoints
    from wtb.operations.control.pause_cancel import Cancelled
    from wtb.operations.growth.stopping import StoppedCombinations


def pause(
    ref: options.SweepOrExecution,
    reason: options.Reason = None,
    now: Annotated[
        bool, typer.Option("--now", help="Of an execution: end the node that it is in, which runs again on resume.")
    ] = False,
    db: options.Db = None,
) -> None:
    """Pause a sweep or execution until it is resumed.

    It holds wherever the sweep runs. Nodes that run may finish, and nothing is lost. Of an execution that runs, wait
    some seconds until it has paused.

    See also: `wtb resume` continues it; `wtb breakpoint set` pauses at a node; `wtb schedule pause` is for schedules.

    Examples: wtb pause nightly --reason 'the model is down'  |  wtb pause EXECUTION --now
    """
    paused = open_backend(db).call(pause_cancel.pause, ref, reason=reason, now=now)
    if paused.already is not None:
        say(f"{paused.name} is paused already ({paused.already})")
        return
    for one in paused.running:
        nodes = ", ".join(f"{node} ({took(seconds)})" for node, seconds in one.nodes) or "its step"
        say(f"execution {one.execution} pauses as soon as what it is in has ended: {nodes}; --now ends it")
    if paused.kind == "sweep":
        say(f"{paused.name} is paused; continue with: wtb resume {paused.id}")
    elif ids := paused.paused:
        say(f"paused: {', '.join(ids[:10])}{' ...' if len(ids) > 10 else ''}; continue with: wtb resume {ids[0]}")
    elif paused.status not in ("running", "forked", "pending"):
        say(f"{paused.name} was quicker: it is {paused.status}")
        raise typer.Exit(1)


def cancel(
    ref: options.SweepOrExecution,
    reason: options.Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: options.Db = None,
) -> None:
    """End a sweep or execution for good; results so far stay.

    It ends wherever it runs, and so do nodes that run.

    See also: `wtb pause` holds it up; `wtb delete` removes a sweep with its results; `wtb combination stop` ends only
    some combinations.

    Examples: wtb cancel nightly  |  wtb cancel EXECUTION --yes
    """
    backend = open_backend(db)
    preview = backend.call(pause_cancel.preview_cancel, ref)
    name, id = preview.name, preview.id
    if preview.already is not None:
        say(f"{name} is cancelled already ({preview.already})")
        return
    if not yes and not confirm(_question(preview)):
        say("nothing was cancelled")
        raise typer.Exit(1)
    cancelled = backend.call(pause_cancel.cancel, ref, reason=reason)
    if cancelled.kind == "sweep":
        say(f"{name} is cancelled, with {cancelled.cells:,} cells; what it has found is in: wtb matrix {id}")
    elif cancelled.is_fork:
        say(f"{name} is cancelled, a fork without cells; `wtb fork {id}` would continue beside it")
    else:
        say(f"{name} is cancelled, with {cancelled.cells:,} cells; `wtb retry {id}` would run them again")


def _question(preview: Cancelled) -> str:
    if preview.kind == "sweep":
        return f"Cancel {preview.name} for good, with {preview.cells:,} cells that are not at their end?"
    stands = "a fork without cells" if preview.is_fork else f"which stands for {preview.cells:,} cells"
    return f"Cancel {preview.name}, {stands}?"


def stop(
    ref: options.Sweep,
    combination: Annotated[
        list[str],
        typer.Argument(metavar="NODE=VARIANT...", help="What they choose; of several all must match."),
    ],
    reason: options.Reason = None,
    db: options.Db = None,
) -> None:
    """Skip the open cells of some combinations; the others go on.

    See also: `wtb extend --combination` lets a stopped combination run again; `wtb cancel` ends the whole sweep.

    Example: wtb combination stop nightly answer=terse
    """
    chosen = dict(read_pair("combination", text) for text in combination)
    say(
        _stopped_in_words(
            open_backend(db).call(stopping.stop_combination, ref, combination=chosen, reason=reason), chosen
        )
    )


def _stopped_in_words(stopped: StoppedCombinations, chosen: dict[str, str]) -> str:
    name = f"sweep {stopped.name} ({stopped.sweep})"
    if not stopped.combinations:
        return f"{name}: {plural(stopped.already, 'combination')} stopped already"
    names = ", ".join(combinations.in_words(choices) for choices in stopped.combinations[:10])
    more = f" and {len(stopped.combinations) - 10:,} more" if len(stopped.combinations) > 10 else ""
    return (
        f"{name}: stopped {names}{more}, {plural(stopped.cells, 'cell')} skipped; it runs again with: "
        f"wtb extend {stopped.sweep} {combinations.chosen_in_shell(chosen)}"
    )


def list_(
    ref: options.SweepOrExecution,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """List breakpoints, where executions pause.

    They are those of a sweep, or of a single execution.

    See also: `wtb breakpoint set` changes them.

    Example: wtb breakpoint list nightly
    """
    _show_breakpoints(open_backend(db).call(breakpoints.list_breakpoints, ref), format, output)


def set_(
    ref: options.SweepOrExecution,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="TEXT", help="[before|after] NODE [if CONDITION]; may be given several times."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="TEXT", help="One, as it is listed; may be given several times."),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all.")] = False,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Add or remove breakpoints, where executions pause.

    They are those of a sweep, or of a single execution; who runs it sees them within a second. Executions pause before
    a node, or after it, always or where a condition over the state holds; `wtb resume` continues it.

    See also: `wtb breakpoint list` lists them; `wtb pause` pauses all of it, at once.

    Example: wtb breakpoint set nightly --add 'answer if len(docs) == 0'
    """
    if not (add or remove or clear):
        raise InputError("nothing to change; expected --add, --remove or --clear")
    changed = open_backend(db).call(breakpoints.set_breakpoints, ref, add=add or (), remove=remove or (), clear=clear)
    _show_breakpoints(changed, format, output)


def _show_breakpoints(shown: Breakpoints, format: options.Format, output: Path | None) -> None:
    if format is options.Format.json:
        put_json({"sweep": shown.sweep, "breakpoints": list(shown.breakpoints)}, output)
    elif shown.breakpoints:
        put("\n".join(map(printable, shown.breakpoints)), output)
    else:
        say("no breakpoints")


COMBINATION = {"stop": stop}
BREAKPOINT = {"list": list_, "set": set_}
