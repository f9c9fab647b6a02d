"""The command that runs one input through a workflow: start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from wtb.cli import options
from wtb.cli.console import (
    backend_elsewhere,
    open_context,
    prints_to_stderr,
    read_limits,
    read_pairs,
    say,
    shared_context,
)
from wtb.cli.input_files import read_json
from wtb.cli.output import put_as
from wtb.cli.run.event_printer import show_events
from wtb.cli.run.executions import present_execution
from wtb.core.errors import InputError, describe
from wtb.operations.control import state_edits
from wtb.operations.running import local, preparing, submitting
from wtb.planning.factors import parameter_files
from wtb.store.read import references

if TYPE_CHECKING:
    from pathlib import Path

    from wtb.core.documents.plan import StartedDocument
    from wtb.core.tree.stored_spec import Limits
    from wtb.planning.prepare import Prepared

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
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant", metavar="NODE=VARIANT", help="Not the default variant of a node; or NODE.PARAMETER=LEVEL."
        ),
    ] = None,
    from_node: Annotated[
        str | None, typer.Option("--from", metavar="NODE", help="Begin there, with the input as the state.")
    ] = None,
    until: options.Until = None,
    breakpoints: options.Breakpoints = None,
    mode: Annotated[
        str | None, typer.Option("--mode", help="interactive (people answer for models; default) or autonomous.")
    ] = None,
    approval: Annotated[
        list[str] | None,
        typer.Option("--approval", metavar="MODE", help="When people are asked: none, before, 'after NODE', ..."),
    ] = None,
    limits: Annotated[
        list[str] | None, typer.Option("--limits", metavar="KEY=VALUE", help="A limit: usd=1, node_runs=50, wall=1h.")
    ] = None,
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Its project.")] = None,
    queued: Annotated[bool, typer.Option("--submit", help="Leave it to the workers, and return at once.")] = False,
    create_only: Annotated[
        bool, typer.Option("--create-only", help="Store it only, and print its id; `wtb resume` begins it.")
    ] = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what nodes do on stderr.")] = False,
    published: options.Published = False,
) -> None:
    """Run one input through a workflow, and show its state.

    What its nodes do is shown as they run. It can be paused, resumed with another state, rolled back and forked by the
    id that is shown first. Exits with 0 where it has completed, else 1.

    Through a server, and with --published, workers run it, and its code need not be here.

    See also: `wtb run` runs a sweep over many cases.

    Examples: wtb start flow:wf --input case.json  |  wtb start rag --set question='Why?' --create-only
    """
    chosen, files = parameter_files.read_level_files(read_pairs("--variant", variants), "--variant")
    run: dict[str, str | list[str]] = {} if mode is None else {"mode": mode}
    modes = approval[0] if approval and len(approval) == 1 else approval
    if modes:
        run["approval"] = modes
    if (backend := backend_elsewhere(published, db, broker)) is not None:
        from wtb.operations.running import published as elsewhere

        texts = set or []
        submitted = backend.call(
            elsewhere.start_published,
            workflow,
            _input(input, texts),
            variants=chosen,
            texts=files,
            from_node=from_node,
            breakpoints=breakpoints or (),
            until=until,
            mode=mode,
            approval=modes or None,
            project=project,
            session=session,
            limits=read_limits(limits),
            written=state_edits.as_written(texts),
            create_only=create_only,
        )
        _put(submitted, format, output, create_only)
        return
    keys: _Keys = {"run": run, "project": project, "session": session, "limits": read_limits(limits), "texts": files}
    prepared = _prepared(workflow, input, set or [], chosen, from_node, keys)
    local.check_options(prepared, breakpoints=breakpoints or (), until=until)  # before there is a database
    where = shared_context(db, broker) if queued else open_context(db, create=True)
    if create_only and not queued:
        with prints_to_stderr():
            created = local.create(where, prepared, breakpoints=breakpoints or (), until=until)
        say(f"begin it with: wtb resume {created}")
        _put_started(created, False, format, output)
        return
    if not queued:
        with prints_to_stderr(), show_events(where.database, None, quiet) as show:
            ran = local.run(where, prepared, breakpoints=breakpoints or (), until=until, progress=show)
        name = references.find_one(where.database, ran.sweep.id).id
        present_execution(where.database, name, format is options.Format.json, output, ran.ended)
        return
    with prints_to_stderr():
        submitted = submitting.submit(
            where,
            prepared,
            anyway=True,
            breakpoints=breakpoints or (),
            until=until,
            create_only=create_only,
        )
    _put(submitted, format, output, create_only)


def _put(submitted: submitting.Submitted, format: options.Format, output: Path | None, create_only: bool) -> None:
    if create_only:
        say(f"begin it with: wtb resume {submitted.sweep}")
        _put_started(submitted.sweep, False, format, output)
        return
    if submitted.problem is not None:
        say(f"{submitted.problem}; it starts when the broker is back")
    elif not submitted.workers:
        say("it starts when there is a worker: wtb worker")
    say(f"look at it with: wtb status {submitted.sweep}")
    _put_started(submitted.sweep, True, format, output)


def _put_started(id: str, submitted: bool, format: options.Format, output: Path | None) -> None:
    started: StartedDocument = {"id": id, "submitted": submitted}
    put_as(started, id, format, output)


class _Keys(TypedDict):
    """Keys of a sweep file that options give."""

    run: Mapping[str, str | list[str]]
    project: str | None
    session: str | None
    limits: Limits
    texts: Mapping[str, str]


def _prepared(
    workflow: str,
    input: str | None,
    texts: list[str],
    variants: dict[str, str],
    from_node: str | None,
    keys: _Keys,
) -> Prepared:
    state = _input(input, texts)
    with prints_to_stderr():
        return preparing.prepare_single(
            workflow,
            state,
            variants=variants,
            from_node=from_node,
            source=input or "input",
            written=state_edits.as_written(texts),
            **keys,
        )


def _input(input: str | None, texts: list[str]) -> Any:
    """The input of a file, with what options change of it. Raises InputError."""
    state = _read(input)
    if changes := state_edits.parse_changes(texts):
        state = {**_by_key(state, input), **changes}
    return state


def _read(file: str | None) -> Any:
    """The input in a file, or on stdin. Raises InputError."""
    return {} if file is None else read_json("--input", file, MOST)


def _by_key(state: Any, file: str | None) -> dict[str, Any]:
    """An input of which some keys are changed. Raises InputError."""
    if not isinstance(state, dict):
        name = "stdin" if file == "-" else file
        raise InputError(f"--input {name}: {describe(state)}; expected a mapping, of which --set can change keys")
    return state
