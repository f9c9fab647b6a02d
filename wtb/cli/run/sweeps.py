"""Commands that run sweeps: plan, run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.analysis import cases_needed, gates
from wtb.authoring import breakpoints as authoring
from wtb.cli import options
from wtb.cli.console import as_json, open_database, prints_to_stderr, put, read_choices, render_matrix, say, width
from wtb.cli.progress import watch
from wtb.config import yaml_reader
from wtb.core.errors import InputError, WTBError
from wtb.core.stop import INTERRUPTED
from wtb.display.text import plan as text
from wtb.execution.runtime import budgets, sweep_run
from wtb.operations import pilot as pilots
from wtb.operations import sweep as operations
from wtb.planning import binding, checks, estimate, sweep_spec
from wtb.planning import prepare as planning
from wtb.store import database as databases
from wtb.store.files import locations
from wtb.store.limits import budgets as budget_store
from wtb.store.limits import sessions
from wtb.store.read import queries

if TYPE_CHECKING:
    from wtb.authoring.breakpoints import Breakpoint
    from wtb.execution.runtime.sweep_run import Ended, SweepRun
    from wtb.planning.binding import Bound
    from wtb.planning.prepare import Only, Prepared
    from wtb.store.database import Database


def plan(
    file: options.SweepFile,
    limit: options.Limit = None,
    case: options.Case = None,
    combination: options.Combination = None,
    max_cells: options.MaxCells = None,
    session: options.Session = None,
    pilot: Annotated[
        int | None, typer.Option("--pilot", min=2, metavar="N", help="Run N cases, and estimate what all will cost.")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show what a sweep would run, before anything runs.

    It counts combinations, cells, node runs and what sharing saves, and says of each margin how many cases it takes.

    --pilot runs a few cases, drawn with the sweep's seed, as a sweep of its own that is kept, within the limits.

    Example: wtb plan sweep.yaml --limit 10
    """
    prepared = prepare(file, only(limit, case, combination), max_cells, session)
    _check_session(db, prepared.bound.spec.session)
    found = estimate.estimate(prepared.bound.workflow, prepared.choices, share=prepared.bound.spec.run.share)
    planned = text.document(prepared, found) | {"margins": cases_needed.margin_documents(prepared, _existing(db))}
    ended = None if pilot is None else _add_pilot(planned, prepared, pilot, db)
    put(as_json(planned) if format is options.Format.json else text.render(planned, width()), output)
    if ended is not None and ended.status != "completed":
        raise typer.Exit(130 if ended.reason == INTERRUPTED else 1)


def _add_pilot(planned: dict[str, Any], prepared: Prepared, cases: int, db: str | None) -> Ended:
    """Run a pilot and add it to the plan. Returns how it ended."""
    database = open_database(db, create=True)
    row, ended = submit_and_run(database, pilots.pilot_of(prepared, cases), quiet=False)
    counts = queries.cell_counts(database, row["id"])
    failed = sum(counts.get(status, 0) for status in ("failed", "set_aside", "cancelled"))
    planned["pilot"] = pilots.pilot_document(database, prepared, row, failed)
    return ended


def run(
    file: options.SweepFile,
    db: options.Db = None,
    limit: options.Limit = None,
    case: options.Case = None,
    combination: options.Combination = None,
    max_cells: options.MaxCells = None,
    concurrency: options.Concurrency = None,
    breaks: options.Breaks = None,
    final: options.Final = False,
    session: options.Session = None,
    format: options.ShowMatrix = options.MatrixFormat.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where a comparison with a baseline is unclear, too.")
    ] = False,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Run one cell in this process; stop in the debugger where a node fails.")
    ] = False,
) -> None:
    """Run a sweep and show its matrix.

    It runs on this machine. Ctrl-C stops new work and gives running nodes 10 s; a second one stops at once. `wtb
    resume` goes on.

    See also: `wtb submit` gives a sweep to workers; `wtb start` runs one input, without a sweep.

    Examples: wtb run sweep.yaml --limit 3  |  wtb run sweep.yaml --format json -o matrix.json
    """
    prepared = prepare(file, only(limit, case, combination, final), max_cells, session, concurrency)
    if pdb and prepared.cells != 1:
        raise InputError(
            f"--pdb runs one cell, but {prepared.cells:,} are chosen; name it with --case and --combination"
        )
    places = authoring.stops(prepared.bound.workflow, breaks or ())
    database = open_database(db, create=True)
    gates.check_gates(database, prepared.bound.spec)
    row, ended = submit_and_run(database, prepared, quiet, pdb=pdb, breakpoints=places)
    present(database, row, format, output, ended, strict=strict)


def submit_and_run(
    database: Database,
    prepared: Prepared,
    quiet: bool,
    *,
    pdb: bool = False,
    breakpoints: Sequence[Breakpoint] = (),
) -> tuple[Mapping[str, Any], Ended]:
    """Run a sweep to its end or pause: its row then, and how it ended."""
    with prints_to_stderr():  # cases may come from user code
        sweep_id = prepared.submit(database, locations.workspaces_of(database), breakpoints=breakpoints)
    started = sweep_run.new_run(database, sweep_id, prepared.bound, locations.workspaces_of(database), pdb=pdb)
    say(f"sweep {prepared.bound.spec.sweep} ({sweep_id}): {prepared.cells:,} cells{holdout_note(prepared)}")
    return run_to_end(database, started, prepared.bound, quiet, pdb=pdb)


def holdout_note(prepared: Prepared) -> str:
    """Which part of the cases it is, where some are kept for the end."""
    if prepared.bound.spec.holdout is None:
        return ""
    return ", of the cases kept for the end" if prepared.only.final else "; the cases kept for the end run with --final"


def only(limit: int | None, case: str | None, combination: list[str] | None, final: bool = False) -> Only:
    """Return the part of a sweep that options choose."""
    return planning.Only(limit, case, read_choices(combination), final)


def prepare(
    file: Path, part: Only, max_cells: int | None, session: str | None, concurrency: int | None = None
) -> Prepared:
    """Return a sweep file, checked and ready to be submitted. Raises InputError."""
    with prints_to_stderr():
        return operations.prepare_file(
            file, part, max_cells=max_cells or planning.MAX_CELLS, session=session, concurrency=concurrency
        )


def _existing(db: str | None) -> Database | None:
    """The database, where there is one already."""
    return open_database(db) if databases.Database(databases.database_url(db)).exists() else None


def _check_session(db: str | None, session: str | None) -> None:
    """Refuse a session that would not take the sweep."""
    name = sessions.session_name(session)
    if name == databases.DEFAULT_SESSION:  # always there, so that no database needs to be
        return
    database = databases.Database(databases.database_url(db))
    if not database.exists():
        raise sessions.no_session(name)
    sessions.check_open(open_database(db), name)


def rebind(row: Mapping[str, Any]) -> Bound:
    """The code of a stored sweep as it is now. Raises InputError where it is not to be found."""
    with prints_to_stderr():
        bound = binding.bind(planning.stored_spec(row))
    checks.check_pool(bound)
    return bound


def read_limits(texts: list[str] | None) -> dict[str, Any]:
    """Limits as a sweep file has them; `none` lifts one. Raises InputError."""
    lines = []
    nodes: dict[str, list[str]] = {}
    for part in texts or []:
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"--limits {part!r}: expected KEY=VALUE, such as usd=5 or nodes.answer.usd=1")
        value = "null" if value.strip().lower() == "none" else value
        scope, _, rest = key.partition(".")
        node, _, kind = rest.rpartition(".")
        if scope == "nodes" and node:
            nodes.setdefault(node, []).append(f"      {kind}: {value}\n")
        else:
            lines.append(f"  {key}: {value}\n")
    if nodes:
        lines.append("  nodes:\n")
        lines += [f"    {json.dumps(node)}:\n{''.join(of)}" for node, of in nodes.items()]
    if not lines:
        return {}
    return sweep_spec.parse_part(f"limits:\n{''.join(lines)}", "--limits").limits.model_dump(
        exclude_unset=True, exclude={"cell_timeout"}
    )


def check_limits(database: Database, row: Mapping[str, Any], bound: Bound, limits: Mapping[str, Any]) -> None:
    """Refuse limits that a sweep cannot be given, before anything of it is written. Raises InputError."""
    if limits:
        checks.check_nodes(bound.workflow, limits, yaml_reader.Located(where="--limits"))
        budget_store.check_limits(database, row["id"], limits)


def run_again(
    database: Database,
    row: Mapping[str, Any],
    bound: Bound,
    limits: Mapping[str, Any],
    only: str | None = None,
) -> SweepRun:
    """A run of what is pending of a sweep; only: of one execution, and of what it forks into."""
    return sweep_run.SweepRun(
        database, row, bound, workspaces=locations.workspaces_of(database), limits=limits, only=only
    )


def run_to_end(
    database: Database, run: SweepRun, bound: Bound, quiet: bool, *, pdb: bool = False
) -> tuple[Mapping[str, Any], Ended]:
    try:
        with prints_to_stderr():
            ended = run.run_here() if pdb else watch(run, bound.spec.run.grace, quiet=quiet)
    except WTBError:
        say(f"the run ended by an error; when that is fixed, continue with: wtb resume {run.sweep_id}")
        raise
    row = queries.find_sweep(database, run.sweep_id)
    _say_how_it_ended(row, ended)
    return row, ended


def _say_how_it_ended(row: Mapping[str, Any], ended: Ended) -> None:
    if ended.stuck:
        say(f"{ended.stuck} node(s) did not stop in time and were left behind; their results are ignored")
    if ended.status == "completed" and ended.reason:
        say(f"completed early ({ended.reason})")
    if ended.status == "paused":
        more, before = budgets.raising(ended.limit, row)
        say(f"paused ({ended.reason}); go on with: wtb resume {row['id']}{more}")
        if before is not None:
            say(f"before that, raise the budget with: {before}")


def present(
    database: Database,
    row: Mapping[str, Any],
    format: options.MatrixFormat,
    output: Path | None,
    ended: Ended | None = None,
    *,
    strict: bool = False,
) -> None:
    document = gates.judged(database, row)
    put(render_matrix(document, format, output), output)
    raise typer.Exit(exit_code(document, ended, strict=strict))


def exit_code(document: Mapping[str, Any], ended: Ended | None, *, strict: bool = False) -> int:
    """0 all well; 1 cells failed, a gate does not hold or the sweep is not at its end; 130 interrupted.

    Cells that a sweep skipped by its own rule are as planned.
    """
    if ended is not None and ended.status == "paused" and ended.reason == INTERRUPTED:
        return 130
    cells = document["cells"]
    ended_well = document["sweep"]["status"] == "completed" and cells["succeeded"] + cells["skipped"] == cells["total"]
    return 0 if ended_well and gates.all_hold(document, strict=strict) else 1
