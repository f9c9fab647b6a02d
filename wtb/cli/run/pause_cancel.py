"""Commands that pause, cancel, and set breakpoints; names of checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import confirm_first, open_backend, put, put_json, say
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.core.texts import printable, took
from wtb.operations.control import naming, pause_cancel

if TYPE_CHECKING:
    from wtb.operations.control.naming import CheckpointName
    from wtb.operations.control.pause_cancel import Breakpoints, Cancelled


def pause(
    ref: options.SweepOrExecution,
    reason: options.Reason = None,
    now: Annotated[
        bool, typer.Option("--now", help="Of an execution: stop its running node, which runs again on resume.")
    ] = False,
    db: options.Db = None,
) -> None:
    """Pause a sweep or execution until it is resumed.

    It pauses on all machines. Running nodes may finish, and nothing is lost. A running execution takes some seconds to
    pause.

    See also: `wtb resume` continues it; `wtb breakpoint set` pauses at a node; `wtb schedule pause` is for schedules.

    Examples: wtb pause nightly --reason 'the model is down'  |  wtb pause EXECUTION --now
    """
    paused = open_backend(db).call(pause_cancel.pause, ref, reason=reason, now=now)
    if paused.already is not None:
        say(f"{paused.name} is paused already ({paused.already})")
        return
    for running in paused.running:
        nodes = ", ".join(f"{node} ({took(seconds)})" for node, seconds in running.nodes) or "its step"
        say(f"execution {running.execution} pauses as soon as what it is in has ended: {nodes}; --now ends it")
    if paused.kind == "sweep":
        say(f"{paused.name} is paused; continue with: wtb resume {paused.id}")
    elif ids := paused.paused:
        say(f"paused: {', '.join(ids[:10])}{' ...' if len(ids) > 10 else ''}; continue with: wtb resume {ids[0]}")
    elif paused.status not in ("running", "forked", "pending"):
        # It ended before the request took effect.
        say(f"{paused.name} was quicker: it is {paused.status}")
        raise typer.Exit(1)


def cancel(
    ref: options.SweepOrExecution,
    reason: options.Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    db: options.Db = None,
) -> None:
    """Cancel a sweep or execution permanently; results so far stay.

    It ends on all machines, with its running nodes.

    See also: `wtb pause` pauses it; `wtb delete` removes a sweep with its results; `wtb combination stop` ends only
    some combinations.

    Examples: wtb cancel nightly  |  wtb cancel EXECUTION --yes
    """
    backend = open_backend(db)
    preview = backend.call(pause_cancel.preview_cancel, ref)
    name, id = preview.name, preview.id
    if preview.already is not None:
        say(f"{name} is cancelled already ({preview.already})")
        return
    confirm_first(yes, _question(preview), "nothing was cancelled")
    cancelled = backend.call(pause_cancel.cancel, ref, reason=reason)
    if cancelled.kind == "sweep":
        say(f"{name} is cancelled, with {cancelled.cells:,} cells; what it has found is in: wtb matrix {id}")
    elif cancelled.is_fork:
        say(f"{name} is cancelled, a fork without cells; `wtb fork {id}` would continue beside it")
    else:
        say(f"{name} is cancelled, with {cancelled.cells:,} cells; `wtb retry {id}` would run them again")


def _question(preview: Cancelled) -> str:
    if preview.kind == "sweep":
        return f"Cancel {preview.name} permanently, with {preview.cells:,} unfinished cells?"
    stands = "a fork without cells" if preview.is_fork else f"which stands for {preview.cells:,} cells"
    return f"Cancel {preview.name}, {stands}?"


def list_(ref: options.SweepOrExecution, db: options.Db = None, form: options.Form = options.TABLE) -> None:
    """List breakpoints, where executions pause.

    They are those of a sweep, or of a single execution.

    See also: `wtb breakpoint set` changes them.

    Example: wtb breakpoint list nightly
    """
    _show_breakpoints(open_backend(db).call(pause_cancel.list_breakpoints, ref), form)


def set_(
    ref: options.SweepOrExecution,
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="TEXT", help="\\[before|after] NODE \\[if CONDITION]; repeatable."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="TEXT", help="A breakpoint as listed; repeatable.")
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all.")] = False,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Add or remove breakpoints, where executions pause.

    They are those of a sweep, or of a single execution; who runs it sees them within a second. Executions pause before
    a node, or after it, always or where a condition over the state holds; `wtb resume` continues it.

    See also: `wtb breakpoint list` lists them; `wtb pause` pauses all of it, at once.

    Example: wtb breakpoint set nightly --add 'answer if len(docs) == 0'
    """
    if not (add or remove or clear):
        raise InputError("no change is given; expected --add, --remove or --clear")
    changed = open_backend(db).call(pause_cancel.set_breakpoints, ref, add=add or (), remove=remove or (), clear=clear)
    _show_breakpoints(changed, form)


def _show_breakpoints(breakpoints: Breakpoints, form: options.Form) -> None:
    if form.is_json:
        put_json({"sweep": breakpoints.sweep, "breakpoints": list(breakpoints.breakpoints)}, form.output)
    elif breakpoints.breakpoints:
        put("\n".join(map(printable, breakpoints.breakpoints)), form.output)
    else:
        say("no breakpoints")


BREAKPOINT = {"list": list_, "set": set_}


def checkpoint(
    ref: options.Execution,
    name: Annotated[str, typer.Option("--name", help="Its name, unique in the execution and not a node's.")],
    note: Annotated[str | None, typer.Option("--note", help="A note to store with the name.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="CHECKPOINT|NODE", help="The visit; by default the one at the head.")
    ] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Name a checkpoint, so that rollbacks and people find it.

    `wtb rollback --to`, `wtb fork --at` and `wtb files --at` take the name.

    See also: `wtb admin pin` keeps a checkpoint, whatever `wtb admin gc` removes; `wtb history` lists checkpoints.

    Example: wtb checkpoint EXECUTION --name before-the-change --note 'the last one with the old index'
    """
    done = open_backend(db).call(naming.name_checkpoint, ref, name, note=note, at=at)
    put_as(vars(done), _naming_text(done), form)


def _naming_text(done: CheckpointName) -> str:
    before = f" (was {done.previous})" if done.previous not in (None, done.name) else ""
    return f"checkpoint {done.checkpoint} of execution {done.execution} is now {done.name}{before}"
