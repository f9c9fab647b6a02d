"""Commands that move heads and make new ones: rollback, fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli import options
from wtb.cli.broker_notifier import BrokerNotifier
from wtb.cli.console import open_database, prints_to_stderr, read_pair, say
from wtb.cli.output import put_as
from wtb.cli.run.executions import status_lines
from wtb.cli.run.sweeps import rebind
from wtb.core.errors import InputError
from wtb.core.texts import printable
from wtb.display.views import executions, sweeps
from wtb.execution.runtime import fork_run
from wtb.operations.control import compensation, pause_cancel, state_edits
from wtb.operations.control import rollback as operations
from wtb.store.control import forks, tool_calls
from wtb.store.read import queries

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


def rollback(
    execution: options.Execution,
    to: To = None,
    undo: Undo = False,
    reason: options.Reason = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Take an execution back to a checkpoint, and undo its tools.

    It is paused there. Its state and files are those of the checkpoint again; what it leaves stays in history. Its
    cells are to be done again; what forked later is superseded. With --undo the last rollback is taken back instead,
    which is possible as long as nothing has run since: tools are called again.

    See also: `wtb fork` leaves the execution as it is; `wtb retry` runs failed cells again.

    Examples: wtb rollback EXECUTION --to retrieve --reason 'wrong index'  |  wtb rollback EXECUTION --undo
    """
    if (to is None) != undo:
        raise InputError("give either --to CHECKPOINT|NODE, or --undo to take back the last rollback")
    database = open_database(db)
    row = sweeps.find_one(database, execution)
    if to is not None:
        operations.find_target(database, row, to)  # before the code is imported, which takes its time
    with prints_to_stderr():
        bound = _code(database, row)
        if to is None:
            found = operations.undo_rollback(database, row, bound=bound, by=pause_cancel.user(), reason=reason)
        else:
            found = operations.rollback(database, row, to, bound=bound, by=pause_cancel.user(), reason=reason)
    put_as(found, _text(found, "is again at" if undo else "rolled back to"), format, output)


def fork(
    execution: options.Execution,
    at: At = None,
    set: Set = None,
    variant: Variant = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Leave it paused; `wtb resume` runs it.")] = False,
    reason: options.Reason = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Run on from a checkpoint with changes, beside the original.

    Values, variants or code may be others. The new execution owns no cell, so no matrix changes; `wtb show` has its
    result. It runs here until it ends, or by the workers of a sweep that was submitted.

    See also: `wtb rollback` takes the execution itself back.

    Example: wtb fork EXECUTION --at retrieve --set k=5 --variant answer=short
    """
    database = open_database(db)
    row = sweeps.find_one(database, execution)
    sweep = queries.find_sweep(database, row["sweep_id"])
    bound = rebind(sweep)
    fork_id = operations.fork(
        database,
        row["id"],
        bound=bound,
        at=at,
        set=state_edits.read_changes(bound, set or ()),
        variants=dict(read_pair("--variant", text) for text in variant or ()),
        by=pause_cancel.user(),
        reason=reason,
        paused=no_run,
    )
    if no_run:
        say(f"execution {fork_id} is paused; let it run with: wtb resume {fork_id}")
    else:
        _run(database, sweep, fork_id, bound)
    ended = queries.find_execution(database, fork_id)
    put_as(executions.execution_document(database, ended), fork_id, format, output)
    if no_run or ended["status"] in ("completed", "forked", "pending", "running"):
        return
    for line in status_lines(database, ended, None):
        say(line)
    raise typer.Exit(1)


def _run(database: Database, sweep: Mapping[str, Any], fork_id: str, bound: Bound) -> None:
    if sweep["queued"]:
        status = forks.let_workers_go_on(database, sweep["id"], by=pause_cancel.user())
        if status == "paused":
            say(f"execution {fork_id} waits: sweep {sweep['id']} is paused; go on with: wtb resume {sweep['id']}")
            return
        problem = BrokerNotifier(None).notify_pending(database)
        because = f"; {problem}" if problem else ""
        say(f"execution {fork_id} is for the workers{because}; look at it with: wtb show {fork_id}")
        return
    with prints_to_stderr():
        message = fork_run.run_fork(database, fork_id, bound)
    say(message)


def _code(database: Database, row: Mapping[str, Any]) -> Bound | None:
    """The code of an execution, where it may have tools to undo: importing it takes longer than a rollback."""
    return (
        rebind(queries.find_sweep(database, row["sweep_id"]))
        if tool_calls.has_calls(database, row["sweep_id"])
        else None
    )


def _text(found: Mapping[str, Any], what: str) -> str:
    lines = [f"execution {found['execution']} {what} {found['words']}, and is paused"]
    if found["nodes"]:
        lines.append(f"  rolled back  {_listed(found['nodes'])}")
    if found["superseded"]:
        lines.append(f"  superseded   {_listed(found['superseded'])}")
    for key, label in (("undone", "undone"), ("redone", "made again"), ("irreversible", "no reverse")):
        if found[key]:
            lines.append(f"  {label:<12} {compensation.call_names(found[key])}")
    if found["shared"]:
        lines.append(f"  not undone   {compensation.call_names(found['shared'])}: other executions stand on it, too")
    twice = [call for call in found["undone"] if call.get("again")]
    if twice:
        names = compensation.call_names(twice)
        lines.append(f"  maybe twice  {names}: an earlier rollback was interrupted while it was being undone")
    lines += [f"  failed       {call['tool']}: {printable(call['error'])}" for call in found["failed"]]
    following = ", ".join(found["next"]) or "its end"
    lines.append(f"  next         {following}; go on with: wtb resume {found['execution']}")
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10:,} more" if len(names) > 10 else "")
