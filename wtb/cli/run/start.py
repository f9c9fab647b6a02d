"""The command that runs one input through a workflow: start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.authoring import breakpoints
from wtb.cli import options
from wtb.cli.admin.workers import shared_database
from wtb.cli.broker_notifier import BrokerNotifier
from wtb.cli.console import open_database, prints_to_stderr, read_pairs, say
from wtb.cli.input_files import read_json
from wtb.cli.output import put_as
from wtb.cli.run.executions import present_execution, run_with_events
from wtb.cli.run.sweeps import read_limits
from wtb.core.errors import InputError, describe
from wtb.display.views import progress, sweeps
from wtb.execution.runtime import sweep_run
from wtb.operations import execution
from wtb.operations.control import state_edits
from wtb.store.files import locations

if TYPE_CHECKING:
    from wtb.authoring.breakpoints import Breakpoint
    from wtb.planning.prepare import Prepared
    from wtb.store.database import Database

MOST = 64 * 1024 * 1024  # bytes of an input


def start(
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A registered name, or pkg.module:attribute.")],
    input: Annotated[
        str | None, typer.Option("--input", "-i", metavar="FILE", help="Its input, a JSON mapping; - is stdin.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of the input, as YAML, or KEY=@FILE."),
    ] = None,
    variant: Annotated[
        list[str] | None, typer.Option("--variant", metavar="NODE=VARIANT", help="Not the default variant of a node.")
    ] = None,
    from_node: Annotated[
        str | None, typer.Option("--from", metavar="NODE", help="Begin there, with the input as the state.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="NODE", help="Pause after this node.")] = None,
    breaks: options.Breaks = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="interactive (people answer for models; default) or autonomous.")
    ] = None,
    approval: Annotated[
        str | None, typer.Option("--approval", help="When people are asked: none, manual, before, 'after NODE', ...")
    ] = None,
    limits: Annotated[
        list[str] | None, typer.Option("--limits", metavar="KEY=VALUE", help="A limit: usd=1, node_runs=50, wall=1h.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Its project.")] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Leave it to the workers, and return at once.")] = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what nodes do on stderr.")] = False,
) -> None:
    """Run one input through a workflow, and show its state.

    What its nodes do is shown as they run. It can be paused, resumed with another state, rolled back and forked by the
    id that is shown first. Exits with 0 where it has completed, else 1.

    See also: `wtb run` runs a sweep over many cases.

    Examples: wtb start flow:wf --input case.json  |  wtb start rag --set question='Why?' --until retrieve
    """
    run: dict[str, Any] = {
        name: option for name, option in (("mode", mode), ("approval", approval)) if option is not None
    }
    keys: dict[str, Any] = {"run": run, "project": project, "session": session, "limits": read_limits(limits)}
    prepared, places = _prepared(
        workflow, input, set or [], read_pairs("--variant", variant), from_node, breaks or [], until, keys
    )
    if submit:
        _submit(prepared, places, db, broker, format, output)
        return
    _run(open_database(db, create=True), prepared, places, format, output, quiet)


def _prepared(
    workflow: str,
    input: str | None,
    texts: list[str],
    variants: dict[str, str],
    from_node: str | None,
    breaks: list[str],
    until: str | None,
    keys: dict[str, Any],
) -> tuple[Prepared, list[Breakpoint]]:
    state = _read(input)
    if changes := state_edits.parse_changes(texts):
        state = {**_by_key(state, input), **changes}
    with prints_to_stderr():
        prepared = execution.prepare_single(
            workflow,
            state,
            variants=variants,
            from_node=from_node,
            source=input or "input",
            written=state_edits.as_written(texts),
            **keys,
        )
        return prepared, breakpoints.stops(prepared.bound.workflow, breaks, until)


def _read(file: str | None) -> Any:
    """The input in a file, or on stdin. Raises InputError."""
    return {} if file is None else read_json("--input", file, MOST)


def _by_key(state: Any, file: str | None) -> dict[str, Any]:
    """An input of which some keys are changed. Raises InputError."""
    if not isinstance(state, dict):
        name = "stdin" if file == "-" else file
        raise InputError(f"--input {name}: {describe(state)}; expected a mapping, of which --set can change keys")
    return state


def _run(
    database: Database,
    prepared: Prepared,
    places: list[Breakpoint],
    format: options.Format,
    output: Path | None,
    quiet: bool,
) -> None:

    workspaces = locations.workspaces_of(database)
    sweep_id = prepared.submit(database, workspaces, breakpoints=places)
    run = sweep_run.new_run(database, sweep_id, prepared.bound, workspaces)
    say(f"execution {sweep_id} of {prepared.bound.workflow.name}")
    ended = run_with_events(database, run, prepared.bound, quiet)
    present_execution(database, sweeps.find_one(database, sweep_id)["id"], format is options.Format.json, output, ended)


def _submit(
    prepared: Prepared,
    places: list[Breakpoint],
    db: str | None,
    broker: str | None,
    format: options.Format,
    output: Path | None,
) -> None:

    notifier = BrokerNotifier(broker)
    database = shared_database(db)
    notifier.check()
    sweep_id = prepared.submit(database, locations.workspaces_of(database), queued=True, breakpoints=places)
    problem = notifier.notify_pending(database)
    if problem is not None:
        say(f"{problem}; it starts when the broker is back")
    elif not progress.crew(database):
        say("it starts when there is a worker: wtb worker")
    say(f"look at it with: wtb status {sweep_id}")
    put_as({"id": sweep_id, "submitted": True}, sweep_id, format, output)
