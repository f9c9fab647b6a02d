"""Commands on sweep files: plan, pilot, run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wtb.analysis import gates
from wtb.cli import options
from wtb.cli.console import (
    backend_elsewhere,
    open_context,
    prints_to_stderr,
    put,
    put_json,
    render_matrix,
    say,
    width,
)
from wtb.cli.progress import progress_display
from wtb.cli.run.parts import only, prepare
from wtb.core.stop import INTERRUPTED
from wtb.execution.runtime import budgets
from wtb.operations.running import local

if TYPE_CHECKING:
    from wtb.core.documents.matrix import JudgedMatrixDocument
    from wtb.core.documents.plan import PlanDocument
    from wtb.execution.runtime.sweep_run import Ended
    from wtb.operations.context import Context
    from wtb.operations.running.local import Ran


def plan(
    file: options.SweepFile,
    limit: options.Limit = None,
    sample: options.Sample = None,
    case: options.Case = None,
    choices: options.Choices = None,
    max_cells: options.MaxCells = None,
    final: options.Final = False,
    session: options.Session = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
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

    part = only(limit, case, choices, final=final, sample=sample)
    if (backend := backend_elsewhere(published, db)) is not None:
        keys = elsewhere.sweep_to_send(file)
        document = backend.call(elsewhere.plan_published, keys, part=part, max_cells=max_cells, session=session)
    else:
        prepared = prepare(file, part, max_cells, session)
        with prints_to_stderr():
            # The database may be missing: it only adds times and prices of earlier sweeps.
            document = planning.plan(open_context(db, prepare=False), prepared).document
    _show_plan(document, format, output)


def pilot(
    file: options.SweepFile,
    pilot: Annotated[int, typer.Option("--cases", metavar="N", help="Number of cases to run.")],
    limit: options.Limit = None,
    sample: options.Sample = None,
    case: options.Case = None,
    choices: options.Choices = None,
    max_cells: options.MaxCells = None,
    final: options.Final = False,
    session: options.Session = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Run a few cases, and estimate the cost of all.

    They are drawn with the sweep's seed, and run as a sweep of its own that is kept, within the limits. It shows the
    plan with what they found.

    See also: `wtb plan` shows what a sweep would run, and runs nothing.

    Example: wtb pilot sweep.yaml --cases 3
    """
    from wtb.operations.running import planning

    prepared = prepare(file, only(limit, case, choices, final=final, sample=sample), max_cells, session)
    context = open_context(db, prepare=False)
    with prints_to_stderr(), progress_display(quiet=False) as show:
        planned = planning.run_pilot(context, prepared, pilot=pilot, progress=show)
    _show_plan(planned.document, format, output)
    if planned.pilot is not None and planned.pilot.status != "completed":
        raise typer.Exit(130 if planned.pilot.reason == INTERRUPTED else 1)


def _show_plan(document: PlanDocument, format: options.Format, output: Path | None) -> None:
    from wtb.display.text import plan as text

    if format is options.Format.json:
        put_json(document, output)
    else:
        put(text.render(document, width()), output)


def run(
    file: options.SweepFile,
    db: options.Db = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    case: options.Case = None,
    choices: options.Choices = None,
    max_cells: options.MaxCells = None,
    concurrency: options.Concurrency = None,
    breakpoints: options.Breakpoints = None,
    until: options.Until = None,
    final: options.Final = False,
    session: options.Session = None,
    format: options.ShowMatrix = options.MatrixFormat.table,
    output: options.Output = None,
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
    prepared = prepare(file, only(limit, case, choices, final=final, sample=sample), max_cells, session, concurrency)
    places = tuple(breakpoints or ())
    # Before the database is opened, so that a mistake in the options does not leave one behind.
    local.check_options(prepared, breakpoints=places, until=until, pdb=pdb)
    context = open_context(db, create=True)
    with prints_to_stderr(), progress_display(quiet, matrix=True) as show:
        ran = local.run(context, prepared, breakpoints=places, until=until, pdb=pdb, progress=show)
    say_how_it_ended(ran)
    present(context, ran, format, output, strict=strict)


def say_how_it_ended(ran: Ran) -> None:
    """Print why a sweep did not complete, and the command that continues it."""
    row, ended = ran.sweep, ran.ended
    if ended.stuck:
        say(f"{ended.stuck} node(s) did not stop in time and were left behind; their results are ignored")
    if ended.status == "completed" and ended.reason:
        say(f"completed early ({ended.reason})")
    if ended.status == "paused":
        more, before = budgets.raising(ended.limit, row)
        say(f"paused ({ended.reason}); continue with: wtb resume {row.id}{more}")
        if before is not None:
            say(f"before that, raise the budget with: {before}")


def present(
    context: Context, ran: Ran, format: options.MatrixFormat, output: Path | None, *, strict: bool = False
) -> None:
    """Show the matrix of a sweep, and exit with the code of its outcome."""
    from wtb.analysis import kept_matrix  # which the first node does not wait for

    document = kept_matrix.judged(context.database, ran.sweep)
    put(render_matrix(document, format, output), output)
    raise typer.Exit(exit_code(document, ran.ended, strict=strict))


def exit_code(document: JudgedMatrixDocument, ended: Ended | None, *, strict: bool = False) -> int:
    """0 all well; 1 cells failed, a gate does not hold or the sweep is not at its end; 130 interrupted.

    Cells that a sweep skipped by its own rule are as planned.
    """
    # 130 is the exit code of a program that Ctrl-C ended.
    if ended is not None and ended.status == "paused" and ended.reason == INTERRUPTED:
        return 130
    cells = document["cells"]
    ended_well = document["sweep"]["status"] == "completed" and cells["succeeded"] + cells["skipped"] == cells["total"]
    return 0 if ended_well and gates.all_hold(document["gates"], strict=strict) else 1
