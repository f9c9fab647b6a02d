"""Commands that decide about sweeps under way: pause, cancel; and what `resume` and `retry` do where workers run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.authoring import breakpoints
from wtb.cli import options
from wtb.cli.console import as_json, confirm, open_database, put, say
from wtb.core.errors import ConflictError, InputError, meant_or_known
from wtb.core.status import FINAL_CELLS, OPEN_EXECUTIONS
from wtb.core.texts import printable, took
from wtb.display.views import sweeps
from wtb.operations.control import pause_cancel
from wtb.store.control import executions
from wtb.store.control import sweeps as store
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.store.database import Database

Row = Mapping[str, Any]


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

    See also: `wtb resume` goes on; `wtb break` pauses at a node; `wtb schedule pause` is for schedules.

    Examples: wtb pause nightly --reason 'the model is down'  |  wtb pause EXECUTION --now
    """
    database = open_database(db)
    kind, row = sweeps.find_target(database, ref)
    if kind == "execution":
        _pause_execution(database, row, reason, now)
        return
    if now:
        raise InputError(f"--now is for one execution, and {ref!r} is a sweep; `wtb cancel {ref}` ends its nodes")
    if row["status"] == "paused":
        say(f"sweep {row['name']} ({row['id']}) is paused already ({row['reason']})")
        return
    if row["status"] not in ("pending", "running"):
        raise ConflictError(f"sweep {row['name']} ({row['id']}) is {row['status']}: there is nothing to pause")
    if row["status"] == "pending" and not row["queued"]:
        raise ConflictError(f"sweep {row['name']} ({row['id']}) has not begun: there is nothing to pause")
    by = pause_cancel.user()
    store.pause(database, row["id"], reason=pause_cancel.because(by, reason), by=by)
    say(f"sweep {row['name']} ({row['id']}) is paused; go on with: wtb resume {row['id']}")


def _pause_execution(database: Database, row: Row, reason: str | None, now: bool) -> None:
    what = f"execution {row['id']}"
    if row["status"] == "paused":
        say(f"{what} is paused already ({row['reason']})")
        return
    line = pause_cancel.pause(database, row["id"], by=pause_cancel.user(), reason=reason, at_once=now)
    for one in line:
        if one["status"] == "running":
            nodes = [
                f"{run['node']} ({took(run['for_s'])})" for run in executions.node_runs_under_way(database, one["id"])
            ]
            say(
                f"execution {one['id']} pauses as soon as what it is in has ended: {', '.join(nodes) or 'its step'}; "
                f"--now ends it"
            )
    paused = [one["id"] for one in line if one["status"] == "paused"]
    if paused:
        say(f"paused: {', '.join(paused[:10])}{' ...' if len(paused) > 10 else ''}; go on with: wtb resume {paused[0]}")
    elif line[0]["status"] not in ("running", "forked", "pending"):
        say(f"{what} was quicker: it is {line[0]['status']}")
        raise typer.Exit(1)


def cancel(
    ref: options.SweepOrExecution,
    reason: options.Reason = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    db: options.Db = None,
) -> None:
    """End a sweep or execution for good; results so far stay.

    It ends wherever it runs, and so do nodes that run.

    See also: `wtb pause` holds it up; `wtb delete` removes a sweep with its results.

    Examples: wtb cancel nightly  |  wtb cancel EXECUTION --yes
    """
    database = open_database(db)
    kind, row = sweeps.find_target(database, ref)
    if kind == "execution":
        _cancel_execution(database, row, reason, yes)
        return
    what = f"sweep {row['name']} ({row['id']})"
    if row["status"] == "cancelled":
        say(f"{what} is cancelled already ({row['reason']})")
        return
    if row["status"] == "completed":
        raise ConflictError(f"{what} is completed: there is nothing to cancel (`wtb delete` removes it)")
    open_cells = sum(
        count for status, count in queries.cell_counts(database, row["id"]).items() if status not in FINAL_CELLS
    )
    if not yes and not confirm(f"Cancel {what} for good, with {open_cells:,} cells that are not at their end?"):
        say("nothing was cancelled")
        raise typer.Exit(1)
    by = pause_cancel.user()
    count = store.cancel(database, row["id"], reason=pause_cancel.because(by, reason), by=by)
    say(f"{what} is cancelled, with {count:,} cells; what it has found is in: wtb matrix {row['id']}")


def _cancel_execution(database: Database, row: Row, reason: str | None, yes: bool) -> None:
    what = f"execution {row['id']}"
    if row["status"] not in OPEN_EXECUTIONS:
        raise executions.impossible(row, "cancelled")
    fork = row["choices"] is not None
    stands = "a fork without cells" if fork else f"which stands for {len(row['combinations']):,} cells"
    if not yes and not confirm(f"Cancel {what}, {stands}?"):
        say("nothing was cancelled")
        raise typer.Exit(1)
    by = pause_cancel.user()
    count = executions.cancel(database, row["id"], reason=pause_cancel.because(by, reason), by=by)
    if fork:
        say(f"{what} is cancelled, a fork without cells; `wtb fork {row['id']}` would go on beside it")
        return
    say(f"{what} is cancelled, with {count:,} cells; `wtb retry {row['id']}` would run them again")


def break_(
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
    """List or change breakpoints, where executions pause.

    They are those of a sweep, or of a single execution; who runs it sees them within a second. Executions pause before
    a node, or after it, always or where a condition over the state holds; `wtb resume` goes on.

    See also: `wtb pause` pauses all of it, at once.

    Examples: wtb break nightly --add 'answer if len(docs) == 0'  |  wtb break nightly
    """
    database = open_database(db)
    kind, row = sweeps.find_target(database, ref)
    sweep = queries.find_sweep(database, row["sweep_id"]) if kind == "execution" else row
    graph = queries.workflow_graph(database, sweep["workflow_id"])
    nodes = [node["name"] for node in graph["nodes"]]
    before = list(sweep["breakpoints"] or ())
    removed = [str(one) for one in breakpoints.parse_breakpoints(remove or (), nodes)]
    for text in removed:
        if text not in before:
            raise InputError(f"there is no breakpoint {text!r}{meant_or_known(text, before) if before else ''}")
    kept = [] if clear else [text for text in before if text not in removed]
    texts = [str(one) for one in breakpoints.parse_breakpoints([*kept, *(add or ())], nodes, list(graph["state"]))]
    if texts != before:
        if sweep["status"] == "cancelled":
            raise InputError(f"sweep {sweep['id']} is cancelled: nothing of it runs any more")
        executions.set_breakpoints(database, sweep["id"], texts, by=pause_cancel.user())
    if format is options.Format.json:
        put(as_json({"sweep": sweep["id"], "breakpoints": texts}), output)
    elif texts:
        put("\n".join(map(printable, texts)), output)
    else:
        say("no breakpoints")
