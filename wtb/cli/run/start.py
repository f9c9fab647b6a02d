"""Commands on one input for a workflow: start, execution create."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
from wtb.core.frozen import frozen
from wtb.operations.control import state_edits
from wtb.operations.running import local, preparing, submitting
from wtb.planning import parameter_files
from wtb.store.read import details

if TYPE_CHECKING:
    from pathlib import Path

    from wtb.core.documents.plan import StartedDocument
    from wtb.operations.context import Backend
    from wtb.planning.prepare import Prepared

MAX_INPUT_BYTES = 64 * 1024 * 1024  # bytes of an input


_Workflow = Annotated[str, typer.Argument(metavar="WORKFLOW", help="A registered name, or pkg.module:attribute.")]
_Input = Annotated[
    str | None, typer.Option("--input", "-i", metavar="FILE", help="Its input, a JSON mapping; - is stdin.")
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A key of the input, as YAML, or KEY=@FILE."),
]
_Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", metavar="NODE=VARIANT", help="Variant of a node other than its default; or NODE.PARAMETER=LEVEL."
    ),
]
_FromNode = Annotated[
    str | None, typer.Option("--from", metavar="NODE", help="Start at this node, with the input as the state.")
]
_Mode = Annotated[
    str | None, typer.Option("--mode", help="interactive (people answer for models; default) or autonomous.")
]
_Approval = Annotated[
    list[str] | None,
    typer.Option("--approval", metavar="MODE", help="When to ask people: none, before, 'after NODE', ..."),
]
_Limits = Annotated[
    list[str] | None, typer.Option("--limits", metavar="KEY=VALUE", help="A limit: usd=1, node_runs=50, wall=1h.")
]
_Project = Annotated[str | None, typer.Option("--project", metavar="NAME", help="Its project.")]
_Queued = Annotated[bool, typer.Option("--submit", help="Submit it to the workers, and return at once.")]


def start(
    workflow: _Workflow,
    input: _Input = None,
    set: _Set = None,
    variants: _Variants = None,
    from_node: _FromNode = None,
    until: options.Until = None,
    breakpoints: options.Breakpoints = None,
    mode: _Mode = None,
    approval: _Approval = None,
    limits: _Limits = None,
    project: _Project = None,
    queued: _Queued = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what nodes do on stderr.")] = False,
    published: options.Published = False,
) -> None:
    """Run one input through a workflow, and show its state.

    Prints progress as nodes run. Pause, resume, roll back or fork it by the id that is printed first. Exits with 0 if
    it completes, else 1.

    Through a server, and with --published, workers run it, and its code need not be here.

    See also: `wtb run` runs a sweep over many cases; `wtb execution create` stores an input to run later.

    Examples: wtb start flow:wf --input case.json  |  wtb start rag --set question='Why?'
    """
    single = _Single(
        workflow,
        input,
        set or [],
        variants,
        from_node,
        until,
        breakpoints or [],
        mode,
        approval,
        limits,
        project,
        session,
    )
    if (backend := backend_elsewhere(published, db, broker)) is not None:
        _put_submitted(single.submit_published(backend), format, output)
        return
    # Before the database is opened, so that a mistake in the options does not leave one behind.
    prepared = single.prepared()
    if queued:
        context = shared_context(db, broker)
        with prints_to_stderr():
            # A single input may wait for a worker: the message below reports it if there is none.
            submitted = submitting.submit(context, prepared, anyway=True, breakpoints=single.breakpoints, until=until)
        _put_submitted(submitted, format, output)
        return
    context = open_context(db, create=True)
    with prints_to_stderr(), show_events(context.database, None, quiet) as show:
        ran = local.run(context, prepared, breakpoints=single.breakpoints, until=until, progress=show)
    name = details.find_one(context.database, ran.sweep.id).id
    present_execution(context.database, name, format is options.Format.json, output, ran.ended)


def create(
    workflow: _Workflow,
    input: _Input = None,
    set: _Set = None,
    variants: _Variants = None,
    from_node: _FromNode = None,
    until: options.Until = None,
    breakpoints: options.Breakpoints = None,
    mode: _Mode = None,
    approval: _Approval = None,
    limits: _Limits = None,
    project: _Project = None,
    queued: Annotated[bool, typer.Option("--submit", help="Let workers run it once it is resumed.")] = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
    published: options.Published = False,
) -> None:
    """Store one input for a workflow; `resume` runs it later.

    It prints the id of the execution. Through a server, and with --published, workers will run it, and its code need
    not be here.

    See also: `wtb start` runs an input at once.

    Example: wtb execution create rag --set question='Why?'
    """
    single = _Single(
        workflow,
        input,
        set or [],
        variants,
        from_node,
        until,
        breakpoints or [],
        mode,
        approval,
        limits,
        project,
        session,
    )
    if (backend := backend_elsewhere(published, db, broker)) is not None:
        id = single.submit_published(backend, create_only=True).sweep
    else:
        prepared = single.prepared()
        context = shared_context(db, broker) if queued else open_context(db, create=True)
        places = single.breakpoints
        with prints_to_stderr():
            if queued:
                id = submitting.submit(
                    context, prepared, anyway=True, breakpoints=places, until=until, create_only=True
                ).sweep
            else:
                id = local.create(context, prepared, breakpoints=places, until=until)
    say(f"begin it with: wtb resume {id}")
    _put_started(id, False, format, output)


EXECUTION = {"create": create}


@frozen
class _Single:
    """One input for a workflow, as options give it."""

    workflow: str
    input: str | None
    texts: list[str]
    variants: list[str] | None
    from_node: str | None
    until: str | None
    breakpoints: list[str]
    mode: str | None
    approval: list[str] | None
    limits: list[str] | None
    project: str | None
    session: str | None

    @property
    def modes(self) -> str | list[str] | None:
        """The approval modes, as in a sweep file."""
        approval = self.approval
        return (approval[0] if approval and len(approval) == 1 else approval) or None

    def submit_published(self, backend: Backend, *, create_only: bool = False) -> submitting.Submitted:
        """Give it to workers by what they publish of its workflow."""
        from wtb.operations.running import published as elsewhere

        variants, files = parameter_files.read_level_files(read_pairs("--variant", self.variants), "--variant")
        return backend.call(
            elsewhere.start_published,
            self.workflow,
            _input(self.input, self.texts),
            variants=variants,
            texts=files,
            from_node=self.from_node,
            breakpoints=self.breakpoints,
            until=self.until,
            mode=self.mode,
            approval=self.modes,
            project=self.project,
            session=self.session,
            limits=read_limits(self.limits),
            written=state_edits.as_written(self.texts),
            create_only=create_only,
        )

    def prepared(self) -> Prepared:
        """Bind it to the code here, and check its options: before there is a database. Raises InputError."""
        variants, files = parameter_files.read_level_files(read_pairs("--variant", self.variants), "--variant")
        run = {"mode": self.mode, "approval": self.modes}
        with_state = _input(self.input, self.texts)
        with prints_to_stderr():
            prepared = preparing.prepare_single(
                self.workflow,
                with_state,
                variants=variants,
                from_node=self.from_node,
                source=self.input or "input",
                written=state_edits.as_written(self.texts),
                run={key: option for key, option in run.items() if option is not None},
                project=self.project,
                session=self.session,
                limits=read_limits(self.limits),
                texts=files,
            )
        local.check_options(prepared, breakpoints=self.breakpoints, until=self.until)
        return prepared


def _put_submitted(submitted: submitting.Submitted, format: options.Format, output: Path | None) -> None:
    if submitted.problem is not None:
        say(f"{submitted.problem}; it starts when the broker is back")
    elif not submitted.workers:
        say("it starts when there is a worker: wtb worker")
    say(f"look at it with: wtb status {submitted.sweep}")
    _put_started(submitted.sweep, True, format, output)


def _put_started(id: str, submitted: bool, format: options.Format, output: Path | None) -> None:
    started: StartedDocument = {"id": id, "submitted": submitted}
    put_as(started, id, format, output)


def _input(input: str | None, texts: list[str]) -> Any:
    """The input of a file, with what options change of it. Raises InputError."""
    state = _read(input)
    if changes := state_edits.parse_changes(texts):
        state = {**_by_key(state, input), **changes}
    return state


def _read(file: str | None) -> Any:
    """The input in a file, or on stdin. Raises InputError."""
    return {} if file is None else read_json("--input", file, MAX_INPUT_BYTES)


def _by_key(state: Any, file: str | None) -> dict[str, Any]:
    """An input of which some keys are changed. Raises InputError."""
    if not isinstance(state, dict):
        name = "stdin" if file == "-" else file
        raise InputError(f"--input {name}: {describe(state)}; expected a mapping, of which --set can change keys")
    return state
