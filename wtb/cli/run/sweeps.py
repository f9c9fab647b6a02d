"""Commands on sweep files: plan, pilot, run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from wtb.cli import options
from wtb.cli.console import backend_elsewhere, open_context, prints_to_stderr, read_choices
from wtb.cli.progress import progress_display
from wtb.cli.run.outcome import present, say_how_it_ended
from wtb.core.stop import INTERRUPTED
from wtb.operations.running import local, preparing
from wtb.planning import picking

if TYPE_CHECKING:
    from pathlib import Path

    from wtb.core.documents.plan import PlanDocument
    from wtb.planning.picking import Only
    from wtb.planning.prepare import Prepared


def only(part: options.Part, final: bool = False) -> Only:
    """Return the part of a sweep that options choose."""
    return picking.Only(part.limit, part.case, read_choices(part.choices), final, part.sample)


def prepare(
    file: Path, part: options.Part, session: str | None, concurrency: int | None = None, *, final: bool = False
) -> Prepared:
    """Return a sweep file, checked and ready to be submitted. Raises InputError."""
    cells = only(part, final)
    with prints_to_stderr():
        return preparing.prepare_file(file, cells, max_cells=part.max_cells, session=session, concurrency=concurrency)


def plan(
    file: options.SweepFile,
    part: options.Part = options.WHOLE,
    final: options.HeldOut = False,
    session: options.Session = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
    published: options.Published = False,
) -> None:
    """Show what a sweep would run, before anything runs.

    It counts combinations, cells, node runs and savings by sharing, and shows how many cases each margin takes.

    Through a server, and with --published, its code need not be here: it is checked against what workers publish.

    See also: `wtb pilot` runs a few cases, and estimates the cost of all.

    Examples: wtb plan sweep.yaml --limit 10  |  wtb plan sweep.yaml --sample 200
    """
    from wtb.operations.running import planning
    from wtb.operations.running import published as elsewhere

    cells = only(part, final)
    if (backend := backend_elsewhere(published, db)) is not None:
        keys = elsewhere.sweep_to_send(file)
        document = backend.call(elsewhere.plan_published, keys, part=cells, max_cells=part.max_cells, session=session)
    else:
        prepared = prepare(file, part, session, final=final)
        with prints_to_stderr():
            # The database may be missing: it only adds times and prices of earlier sweeps.
            document = planning.plan(open_context(db, prepare=False), prepared).document
    _show_plan(document, form)


def pilot(
    file: options.SweepFile,
    pilot: Annotated[int, typer.Option("--cases", metavar="N", help="Number of cases to run.")],
    part: options.Part = options.WHOLE,
    final: options.HeldOut = False,
    session: options.Session = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Run a few cases, and estimate the cost of all.

    They are drawn with the sweep's seed, and run as a sweep of its own that is kept, within the limits. It shows the
    plan with what they found.

    See also: `wtb plan` shows what a sweep would run, and runs nothing.

    Example: wtb pilot sweep.yaml --cases 3
    """
    from wtb.operations.running import planning

    prepared = prepare(file, part, session, final=final)
    context = open_context(db, prepare=False)
    with prints_to_stderr(), progress_display(quiet=False) as show:
        planned = planning.run_pilot(context, prepared, pilot=pilot, progress=show)
    _show_plan(planned.document, form)
    if planned.pilot is not None and planned.pilot.status != "completed":
        raise typer.Exit(130 if planned.pilot.reason == INTERRUPTED else 1)


def _show_plan(document: PlanDocument, form: options.Form) -> None:
    from wtb.cli.output import present as present_document  # imports what the first node does not wait for
    from wtb.display.text import plan as text

    present_document(document, lambda planned, width, _: text.render(planned, width), form)


def run(
    file: options.SweepFile,
    db: options.Db = None,
    part: options.Part = options.WHOLE,
    concurrency: options.Concurrency = None,
    breakpoints: options.Breakpoints = None,
    until: options.Until = None,
    final: options.HeldOut = False,
    session: options.Session = None,
    form: options.MatrixForm = options.MATRIX_TABLE,
    quiet: options.Quiet = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 also if a comparison with a baseline is unclear.")
    ] = False,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Run one cell in this process; open the debugger if it fails.")
    ] = False,
) -> None:
    """Run a sweep and show its matrix.

    It runs on this machine. Ctrl-C stops new work and gives running nodes 10 s; a second one stops at once. `wtb
    resume` goes on.

    See also: `wtb submit` submits a sweep to workers; `wtb start` runs one input, without a sweep.

    Examples: wtb run sweep.yaml --sample 30  |  wtb run sweep.yaml --format json -o matrix.json
    """
    prepared = prepare(file, part, session, concurrency, final=final)
    places = tuple(breakpoints or ())
    # Before the database is opened, so that a mistake in the options does not leave one behind.
    local.check_options(prepared, breakpoints=places, until=until, pdb=pdb)
    context = open_context(db, create=True)
    with prints_to_stderr(), progress_display(quiet, matrix=True) as show:
        ran = local.run(context, prepared, breakpoints=places, until=until, pdb=pdb, progress=show)
    say_how_it_ended(ran)
    present(context, ran, form, strict=strict)
