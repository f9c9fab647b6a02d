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
    from wtb.core.documents.plan import StartedDocument
    from wtb.operations.context import Backend
    from wtb.planning.prepare import Prepared

MAX_INPUT_BYTES = 64 * 1024 * 1024  # bytes of an input


@frozen
class _Single:
    """One input for a workflow, as options give it."""

    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="A registered name, or pkg.module:attribute.")]
    input: Annotated[
        str | None, typer.Option("--input", "-i", metavar="FILE", help="Its input, a JSON mapping; - is stdin.")
    ] = None
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A key of the input, as YAML, or KEY=@FILE.")
    ] = None
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="NODE=VARIANT",
            help="Variant of a node other than its default; or NODE.PARAMETER=LEVEL.",
        ),
    ] = None
    from_node: Annotated[
        str | None, typer.Option("--from", metavar="NODE", help="Start at this node, with the input as the state.")
    ] = None
    until: options.Until = None
    breakpoints: options.Breakpoints = None
    mode: Annotated[
        str | None, typer.Option("--mode", help="interactive (people answer for models; default) or autonomous.")
    ] = None
    approval: Annotated[
        list[str] | None,
        typer.Option("--approval", metavar="MODE", help="When to ask people: none, before, 'after NODE', ..."),
    ] = None
    limits: Annotated[
        list[str] | None, typer.Option("--limits", metavar="KEY=VALUE", help="A limit: usd=1, node_runs=50, wall=1h.")
    ] = None
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Its project.")] = None

    def submit_published(
        self, backend: Backend, session: str | None, *, create_only: bool = False
    ) -> submitting.Submitted:
        """Give it to workers by what they publish of its workflow."""
        from wtb.operations.running import published as elsewhere

        return backend.call(
            elsewhere.start_published,
            self.workflow,
            **self.places,
            mode=self.mode,
            approval=self._approval_modes,
            **self._describe(session),
            create_only=create_only,
        )

    def prepared(self, session: str | None) -> Prepared:
        """Bind it to the code here, and check its options: before there is a database. Raises InputError."""
        described = self._describe(session)
        run = {"mode": self.mode, "approval": self._approval_modes}
        with prints_to_stderr():
            prepared = preparing.prepare_single(
                self.workflow,
                source=self.input or "input",
                run={key: mode for key, mode in run.items() if mode is not None},
                **described,
            )
        local.check_options(prepared, **self.places)
        return prepared

    @property
    def places(self) -> dict[str, Any]:
        """The places at which it pauses."""
        return {"breakpoints": self.breakpoints or [], "until": self.until}

    @property
    def _approval_modes(self) -> str | list[str] | None:
        """The approval modes, as in a sweep file."""
        return (self.approval[0] if self.approval and len(self.approval) == 1 else self.approval) or None

    def _describe(self, session: str | None) -> dict[str, Any]:
        """Return what the code here and workers are given alike. Raises InputError."""
        variants, texts = parameter_files.read_level_files(read_pairs("--variant", self.variants), "--variant")
        return {
            "input": self._read_state(),
            "variants": variants,
            "texts": texts,
            "from_node": self.from_node,
            "project": self.project,
            "session": session,
            "limits": read_limits(self.limits),
            "written": state_edits.as_written(self.set or []),
        }

    def _read_state(self) -> Any:
        """Return the input of the file, with what --set changes of it. Raises InputError."""
        state = {} if self.input is None else read_json("--input", self.input, MAX_INPUT_BYTES)
        changes = state_edits.parse_changes(self.set or [])
        if changes and not isinstance(state, dict):
            name = "stdin" if self.input == "-" else self.input
            raise InputError(f"--input {name}: {describe(state)}; expected a mapping, of which --set can change keys")
        return {**state, **changes} if changes else state


def start(
    single: _Single,
    queued: Annotated[bool, typer.Option("--submit", help="Submit it to the workers, and return at once.")] = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    form: options.Form = options.TABLE,
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
    if (backend := backend_elsewhere(published, db, broker)) is not None:
        _put_submitted(single.submit_published(backend, session), form)
        return
    # Before the database is opened, so that a mistake in the options does not leave one behind.
    prepared, places = single.prepared(session), single.places
    if queued:
        context = shared_context(db, broker)
        with prints_to_stderr():
            # A single input may wait for a worker: the message below reports it if there is none.
            submitted = submitting.submit(context, prepared, anyway=True, **places)
        _put_submitted(submitted, form)
        return
    context = open_context(db, create=True)
    with prints_to_stderr(), show_events(context.database, None, quiet) as show:
        ran = local.run(context, prepared, **places, progress=show)
    name = details.find_one(context.database, ran.sweep.id).id
    present_execution(context.database, name, form, ran.ended)


def create(
    single: _Single,
    queued: Annotated[bool, typer.Option("--submit", help="Let workers run it once it is resumed.")] = False,
    session: options.Session = None,
    db: options.Db = None,
    broker: options.Broker = None,
    form: options.Form = options.TABLE,
    published: options.Published = False,
) -> None:
    """Store one input for a workflow; `resume` runs it later.

    It prints the id of the execution. Through a server, and with --published, workers will run it, and its code need
    not be here.

    See also: `wtb start` runs an input at once.

    Example: wtb execution create rag --set question='Why?'
    """
    if (backend := backend_elsewhere(published, db, broker)) is not None:
        id = single.submit_published(backend, session, create_only=True).sweep
    else:
        prepared, places = single.prepared(session), single.places
        context = shared_context(db, broker) if queued else open_context(db, create=True)
        with prints_to_stderr():
            if queued:
                id = submitting.submit(context, prepared, anyway=True, **places, create_only=True).sweep
            else:
                id = local.create(context, prepared, **places)
    say(f"begin it with: wtb resume {id}")
    _put_started(id, False, form)


EXECUTION = {"create": create}


def _put_submitted(submitted: submitting.Submitted, form: options.Form) -> None:
    if submitted.problem is not None:
        say(f"{submitted.problem}; it starts when the broker is back")
    elif not submitted.workers:
        say("it starts when there is a worker: wtb worker")
    say(f"look at it with: wtb status {submitted.sweep}")
    _put_started(submitted.sweep, True, form)


def _put_started(id: str, submitted: bool, form: options.Form) -> None:
    started: StartedDocument = {"id": id, "submitted": submitted}
    put_as(started, id, form)
