"""Commands that run sweeps: plan, run, resume, retry."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.cli.console import (
    Db,
    Format,
    FormatOption,
    MatrixFormat,
    MatrixFormatOption,
    Output,
    SessionOption,
    SweepArgument,
    as_json,
    open_database,
    prints_to_stderr,
    put,
    read_choices,
    render_matrix,
    say,
)

if TYPE_CHECKING:
    from wtb.binding import Bound
    from wtb.errors import ConflictError
    from wtb.prepare import Only, Prepared
    from wtb.running import Ended, SweepRun
    from wtb.store.database import Database

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The sweep file, YAML or JSON.")]
LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N cases.")]
CaseOption = Annotated[str | None, typer.Option("--case", help="Only the case with this id.")]
CombinationOption = Annotated[
    list[str] | None, typer.Option("--combination", metavar="NODE=VARIANT", help="Only combinations that choose it.")
]
MaxCells = Annotated[int | None, typer.Option("--max-cells", min=1, help="Allow more cells than the cap.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
NewLimits = Annotated[
    list[str] | None,
    typer.Option("--limits", metavar="KEY=VALUE", help="Another limit: node_runs=5000, usd=5 or wall=1h."),
]
Concurrency = Annotated[int | None, typer.Option("--concurrency", min=1, help="Node runs at a time.")]
AllowCode = Annotated[bool, typer.Option("--allow-code-change", help="Go on although code has changed.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end, where workers run it.")]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", metavar="URL", help="Broker of the workers \\[default: $WTB_BROKER_URL].")
]


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: wtb plan sweep.yaml --limit 10")(plan)
    app.command(epilog="Examples: wtb run sweep.yaml --limit 3  |  wtb run sweep.yaml --format json -o matrix.json")(
        run
    )
    app.command(epilog="Example: wtb resume nightly --limits usd=10")(resume)
    app.command(epilog="Example: wtb retry nightly --failed")(retry)


def plan(
    file: FileArgument,
    limit: LimitOption = None,
    case: CaseOption = None,
    combination: CombinationOption = None,
    max_cells: MaxCells = None,
    session: SessionOption = None,
    db: Db = None,
    format: FormatOption = Format.table,
    output: Output = None,
) -> None:
    """Show what a sweep would run, before anything runs: combinations, cells, node runs and what sharing saves."""
    from wtb.plan import estimate
    from wtb.render.planned import document, render

    prepared = _prepare(file, _only(limit, case, combination), max_cells, session=session)
    _check_session(db, prepared.bound.spec.session)
    found = estimate(prepared.bound.workflow, prepared.choices, share=prepared.bound.spec.run.share)
    planned = document(prepared, found)
    put(as_json(planned) if format is Format.json else render(planned), output)


def run(
    file: FileArgument,
    db: Db = None,
    limit: LimitOption = None,
    case: CaseOption = None,
    combination: CombinationOption = None,
    max_cells: MaxCells = None,
    concurrency: Concurrency = None,
    session: SessionOption = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
    quiet: Quiet = False,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Run one cell in this process; stop in the debugger where a node fails.")
    ] = False,
) -> None:
    """Run a sweep and show its matrix.

    Ctrl-C stops new work and gives running nodes 10 s; a second one stops at once. `wtb resume` goes on.
    """
    from wtb.errors import InputError
    from wtb.judging import check_gates

    prepared = _prepare(file, _only(limit, case, combination), max_cells, concurrency, session)
    if pdb and prepared.cells != 1:
        raise InputError(
            f"--pdb runs one cell, but {prepared.cells:,} are chosen; name it with --case and --combination"
        )
    database = open_database(db, create=True)
    check_gates(database, prepared.bound.spec)
    row, ended = submit_and_run(database, prepared, quiet, pdb=pdb)
    _present(database, row, format, output, ended)


def submit_and_run(
    database: Database, prepared: Prepared, quiet: bool, *, pdb: bool = False
) -> tuple[Mapping[str, Any], Ended]:
    """Run a sweep to its end or pause: its row then, and how it ended."""
    from wtb.homes import workspaces_of
    from wtb.running import new_run

    with prints_to_stderr():  # cases may come from user code
        sweep_id = prepared.submit(database, workspaces_of(database))
    started = new_run(database, sweep_id, prepared.bound, workspaces_of(database), pdb=pdb)
    say(f"sweep {prepared.bound.spec.sweep} ({sweep_id}): {prepared.cells:,} cells")
    return _to_the_end(database, started, prepared.bound, quiet, pdb=pdb)


def resume(
    sweep: SweepArgument,
    db: Db = None,
    limits: NewLimits = None,
    allow_code_change: AllowCode = False,
    wait: WaitOption = False,
    broker: BrokerOption = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a sweep that was interrupted, killed or paused. Nothing committed runs again.

    One that was submitted goes back to the workers, and the command returns at once unless told to --wait.
    """
    from wtb.codechange import accept_code
    from wtb.running import take_over
    from wtb.store.claims import unfinished
    from wtb.store.reading import find_sweep

    more = _read_limits(limits)
    database = open_database(db)
    row = find_sweep(database, sweep)
    if row["status"] == "cancelled":
        raise _is_cancelled(row)
    if row["status"] == "completed" and not unfinished(database, row["id"]):  # else a retry was killed early
        say(f"sweep {row['name']} ({row['id']}) is completed; `wtb retry` runs failed cells again")
        _present(database, row, format, output)
        return
    bound = _rebind(row)
    if row["queued"]:
        from wtb.cli.steering import resume_queued

        resume_queued(database, row, bound, more, allow_code_change, broker, wait, format, output, quiet)
        return
    take_over(database, row["id"])
    accept_code(database, row, bound, allow=allow_code_change)
    _go(database, _run_again(database, row, bound, more), bound, format, output, quiet)


def retry(
    sweep: SweepArgument,
    db: Db = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only failed cells, not those cancelled or set aside.")
    ] = False,
    limits: NewLimits = None,
    wait: WaitOption = False,
    broker: BrokerOption = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Run cells again that failed, each from its last good checkpoint, with the code as it is now.

    Those of a sweep that was submitted go to the workers, and the command returns at once unless told to --wait.
    """
    from wtb.codechange import accept_code
    from wtb.running import take_over
    from wtb.store.reading import find_sweep
    from wtb.store.retry import AGAIN
    from wtb.store.retry import retry as retry_cells

    more = _read_limits(limits)
    database = open_database(db)
    row = find_sweep(database, sweep)
    if row["status"] == "cancelled":
        raise _is_cancelled(row)
    bound = _rebind(row)
    statuses = ("failed",) if failed else AGAIN
    if row["queued"]:
        from wtb.cli.steering import retry_queued

        retry_queued(database, row, bound, more, statuses, broker, wait, format, output, quiet)
        return
    take_over(database, row["id"])
    cells = retry_cells(database, row["id"], statuses)
    if not cells:
        say(f"sweep {row['name']} ({row['id']}) has no cells to retry")
        _present(database, row, format, output)
        return
    for node, variant in accept_code(database, row, bound, allow=True):
        say(f"the code of {node}={variant} has changed; the matrix says where results are mixed")
    say(f"sweep {row['name']} ({row['id']}): {cells:,} cells again")
    _go(database, _run_again(database, row, bound, more), bound, format, output, quiet)


def _is_cancelled(row: Mapping[str, Any]) -> ConflictError:
    from wtb.errors import ConflictError

    command = "submit" if row["queued"] else "run"
    return ConflictError(f"sweep {row['id']} is cancelled for good; start it anew with `wtb {command}`")


def prepare(
    file: Path,
    limit: int | None,
    case: str | None,
    combination: list[str] | None,
    max_cells: int | None,
    session: str | None,
) -> Prepared:
    """A sweep file, checked and ready to be submitted. Raises InputError."""
    return _prepare(file, _only(limit, case, combination), max_cells, session=session)


def _only(limit: int | None, case: str | None, combination: list[str] | None) -> Only:
    from wtb.prepare import Only

    return Only(limit, case, read_choices(combination))


def _prepare(
    file: Path,
    only: Only,
    max_cells: int | None,
    concurrency: int | None = None,
    session: str | None = None,
) -> Prepared:
    from wtb.prepare import MAX_CELLS, prepare
    from wtb.spec import load_spec

    spec = load_spec(file)
    located = spec.located
    if concurrency is not None:
        spec = spec.model_copy(update={"run": spec.run.model_copy(update={"concurrency": concurrency})})
    if session is not None:
        spec = spec.model_copy(update={"session": session})
    spec._located = located
    with prints_to_stderr():
        return prepare(spec, only=only, max_cells=max_cells or MAX_CELLS)


def _check_session(db: str | None, given: str | None) -> None:
    """Refuse a session that would not take the sweep."""
    from wtb.store.database import DEFAULT_SESSION, Database, database_url
    from wtb.store.sessions import check_open, no_session, session_name

    name = session_name(given)
    if name == DEFAULT_SESSION:  # always there, so that no database needs to be
        return
    database = Database(database_url(db))
    if not database.exists():
        raise no_session(name)
    check_open(open_database(db), name)


def _rebind(row: Mapping[str, Any]) -> Bound:
    """The code of a stored sweep as it is now. Raises InputError where it is not to be found."""
    from wtb.binding import bind
    from wtb.prepare import check_pool, stored_spec

    with prints_to_stderr():
        bound = bind(stored_spec(row))
    check_pool(bound)
    return bound


def _read_limits(given: list[str] | None) -> dict[str, Any]:
    from wtb.errors import InputError
    from wtb.spec import parse_part

    lines = []
    for part in given or []:
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"--limits {part!r}: expected KEY=VALUE, such as usd=5")
        lines.append(f"  {key}: {value}\n")
    if not lines:
        return {}
    return parse_part(f"limits:\n{''.join(lines)}", "--limits").limits.model_dump(
        exclude_unset=True, exclude={"cell_timeout"}
    )


def _run_again(database: Database, row: Mapping[str, Any], bound: Bound, limits: Mapping[str, Any]) -> SweepRun:
    from wtb.homes import workspaces_of
    from wtb.running import SweepRun

    return SweepRun(database, row, bound, workspaces=workspaces_of(database), limits=limits)


def _go(
    database: Database,
    run: SweepRun,
    bound: Bound,
    format: MatrixFormat,
    output: Path | None,
    quiet: bool,
) -> None:
    """Run a submitted sweep, show its matrix, and exit with the code that says how it went."""
    row, ended = _to_the_end(database, run, bound, quiet)
    _present(database, row, format, output, ended)


def _to_the_end(
    database: Database, run: SweepRun, bound: Bound, quiet: bool, *, pdb: bool = False
) -> tuple[Mapping[str, Any], Ended]:
    from wtb.cli.progress import watch
    from wtb.errors import WTBError
    from wtb.store.reading import find_sweep

    try:
        with prints_to_stderr():
            ended = run.run_here() if pdb else watch(run, bound.spec.run.grace, quiet=quiet)
    except WTBError:
        say(f"the run ended by an error; when that is mended, go on with: wtb resume {run.sweep_id}")
        raise
    row = find_sweep(database, run.sweep_id)
    _say_how_it_ended(row, ended)
    return row, ended


def _say_how_it_ended(row: Mapping[str, Any], ended: Ended) -> None:
    if ended.stuck:
        say(f"{ended.stuck} node(s) did not stop in time and were left behind; their results are ignored")
    if ended.status == "paused":
        more = f" --limits {ended.limit}=MORE" if ended.limit not in (None, "session") else ""
        say(f"paused ({ended.reason}); go on with: wtb resume {row['id']}{more}")
        if ended.limit == "session":
            say(f"before that, raise the quota with: wtb session change {row['session']} --usd MORE")


def _present(
    database: Database, row: Mapping[str, Any], format: MatrixFormat, output: Path | None, ended: Ended | None = None
) -> None:
    from wtb.judging import judged

    document = judged(database, row)
    put(render_matrix(document, format, output), output)
    raise typer.Exit(exit_code(document, ended))


def exit_code(document: Mapping[str, Any], ended: Ended | None) -> int:
    """0 all well; 1 cells failed, a gate does not hold or the sweep is not at its end; 130 interrupted."""
    from wtb.judging import all_hold
    from wtb.limits import INTERRUPTED

    if ended is not None and ended.status == "paused" and ended.reason == INTERRUPTED:
        return 130
    cells = document["cells"]
    ended_well = document["sweep"]["status"] == "completed" and cells["succeeded"] == cells["total"]
    return 0 if ended_well and all_hold(document) else 1
