"""Commands that move heads and make new ones: rollback, fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import (
    Db,
    ExecutionArgument,
    Format,
    FormatOption,
    Output,
    as_json,
    open_database,
    prints_to_stderr,
    put,
    read_pair,
    say,
)
from wtb.config.stack_file import broker_url
from wtb.core.errors import InputError
from wtb.core.texts import printable
from wtb.display.views.executions import execution_document
from wtb.display.views.sweeps import find_one
from wtb.execution.runtime.fork_run import run_fork
from wtb.operations.control.compensation import named
from wtb.operations.control.pause_cancel import user
from wtb.operations.control.rollback import find_target, undo_rollback
from wtb.operations.control.rollback import fork as make
from wtb.operations.control.rollback import rollback as roll_back
from wtb.operations.control.state_edits import read_changes
from wtb.store.control.forks import let_workers_go_on
from wtb.store.control.tool_calls import has_calls
from wtb.store.read.queries import find_execution, find_sweep

if TYPE_CHECKING:
    from wtb.planning.binding import Bound
    from wtb.store.database import Database

To = Annotated[
    str | None, typer.Option("--to", metavar="CHECKPOINT|NODE", help="Where to: a checkpoint, or a node's last visit.")
]
Undo = Annotated[bool, typer.Option("--undo", help="Take back the last rollback.")]
At = Annotated[
    str | None, typer.Option("--at", metavar="CHECKPOINT|NODE", help="Where it goes on from; else from its head.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Another value of a key, as YAML, or KEY=@FILE."),
]
Variant = Annotated[
    list[str] | None,
    typer.Option("--variant", metavar="NODE=VARIANT", help="Another variant of a node that follows."),
]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept with the event.")]


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: wtb rollback EXECUTION --to retrieve --reason 'wrong index'  |  wtb rollback EXECUTION --undo"
    )(rollback)
    app.command(epilog="Example: wtb fork EXECUTION --at retrieve --set k=5 --variant answer=short")(fork)


def rollback(
    execution: ExecutionArgument,
    to: To = None,
    undo: Undo = False,
    reason: Reason = None,
    db: Db = None,
    format: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Take an execution back to a checkpoint, and undo its tools.

    It is paused there. Its state and files are those of the checkpoint again; what it leaves stays in history. Its
    cells are to be done again; what forked later is superseded. With --undo the last rollback is taken back instead,
    which is possible as long as nothing has run since: tools are called again.

    See also: `wtb fork` leaves the execution as it is; `wtb retry` runs failed cells again.
    """
    if (to is None) != undo:
        raise InputError("give either --to CHECKPOINT|NODE, or --undo to take back the last rollback")
    database = open_database(db)
    row = find_one(database, execution)
    if to is not None:
        find_target(database, row, to)  # before the code is imported, which takes its time
    with prints_to_stderr():
        bound = _code(database, row)
        if to is None:
            found = undo_rollback(database, row, bound=bound, by=user(), reason=reason)
        else:
            found = roll_back(database, row, to, bound=bound, by=user(), reason=reason)
    put(as_json(found) if format is Format.json else _text(found, "is again at" if undo else "rolled back to"), output)


def fork(
    execution: ExecutionArgument,
    at: At = None,
    set: Set = None,
    variant: Variant = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Leave it paused; `wtb resume` runs it.")] = False,
    reason: Reason = None,
    db: Db = None,
    format: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Run on from a checkpoint with changes, beside the original.

    Values, variants or code may be others. The new execution owns no cell, so no matrix changes; `wtb show` has its
    result. It runs here until it ends, or by the workers of a sweep that was submitted.

    See also: `wtb rollback` takes the execution itself back.
    """
    from wtb.cli.run.executions import stands
    from wtb.cli.run.sweeps import rebind

    database = open_database(db)
    row = find_one(database, execution)
    sweep = find_sweep(database, row["sweep_id"])
    bound = rebind(sweep)
    made = make(
        database,
        row["id"],
        bound=bound,
        at=at,
        set=read_changes(bound, set or ()),
        variants=dict(read_pair("--variant", text) for text in variant or ()),
        by=user(),
        reason=reason,
        paused=no_run,
    )
    if no_run:
        say(f"execution {made} is paused; let it run with: wtb resume {made}")
    else:
        _run(database, sweep, made, bound)
    ended = find_execution(database, made)
    if format is Format.json:
        put(as_json(execution_document(database, ended)), output)
    else:
        put(made, output)
    if no_run or ended["status"] in ("completed", "forked", "pending", "running"):
        return
    for line in stands(database, ended, None):
        say(line)
    raise typer.Exit(1)


def _run(database: Database, sweep: Mapping[str, Any], made: str, bound: Bound) -> None:
    if sweep["queued"]:
        from wtb.cli.broker_notifier import BrokerNotifier
        from wtb.cli.run.submit import notify_workers

        status = let_workers_go_on(database, sweep["id"], by=user())
        if status == "paused":
            say(f"execution {made} waits: sweep {sweep['id']} is paused; go on with: wtb resume {sweep['id']}")
            return
        problem = notify_workers(database, BrokerNotifier(broker_url(None)))
        say(f"execution {made} is for the workers{'; ' + problem if problem else ''}; look at it with: wtb show {made}")
        return
    with prints_to_stderr():
        said = run_fork(database, made, bound)
    say(said)


def _code(database: Database, row: Mapping[str, Any]) -> Bound | None:
    """The code of an execution, where it may have tools to undo: importing it takes longer than a rollback."""
    from wtb.cli.run.sweeps import rebind

    return rebind(find_sweep(database, row["sweep_id"])) if has_calls(database, row["sweep_id"]) else None


def _text(found: Mapping[str, Any], what: str) -> str:
    lines = [f"execution {found['execution']} {what} {found['words']}, and is paused"]
    if found["nodes"]:
        lines.append(f"  rolled back  {_listed(found['nodes'])}")
    if found["superseded"]:
        lines.append(f"  superseded   {_listed(found['superseded'])}")
    for key, label in (("undone", "undone"), ("redone", "made again"), ("irreversible", "no reverse")):
        if found[key]:
            lines.append(f"  {label:<12} {named(found[key])}")
    if found["shared"]:
        lines.append(f"  not undone   {named(found['shared'])}: other executions stand on it, too")
    twice = [call for call in found["undone"] if call.get("again")]
    if twice:
        lines.append(f"  maybe twice  {named(twice)}: an earlier rollback was interrupted while it was being undone")
    lines += [f"  failed       {call['tool']}: {printable(call['error'])}" for call in found["failed"]]
    following = ", ".join(found["next"]) or "its end"
    lines.append(f"  next         {following}; go on with: wtb resume {found['execution']}")
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
