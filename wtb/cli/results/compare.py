"""Commands that hold sweeps against each other: compare, regress."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.analysis.comparison.compare import check_margin, compare_sweeps
from wtb.analysis.comparison.verdicts import passes
from wtb.analysis.gates import check_gates, judged
from wtb.cli.console import Db, Output, SessionOption, as_json, open_database, put, say, width
from wtb.cli.output import in_color
from wtb.cli.run.sweeps import (
    CaseOption,
    CombinationOption,
    FileArgument,
    LimitOption,
    MaxCells,
    Quiet,
    exit_code,
    prepare,
    submit_and_run,
)
from wtb.core.errors import InputError
from wtb.core.texts import plural
from wtb.display.report import junit
from wtb.display.text.comparisons import as_markdown, comparison, regression
from wtb.planning.binding import margin_problems
from wtb.store.limits.sessions import session_name
from wtb.store.read.baselines import find_baseline, named_baseline, set_baseline
from wtb.store.read.queries import find_sweep

if TYPE_CHECKING:
    from wtb.planning.prepare import Prepared
    from wtb.store.database import Database

Document = dict[str, Any]


class ComparisonFormat(StrEnum):
    """Formats of a comparison."""

    table = "table"
    json = "json"
    md = "md"
    junit = "junit"


FormatOption = Annotated[ComparisonFormat, typer.Option("--format", "-f", help="How to show it.")]
Margin = Annotated[
    list[str] | None,
    typer.Option(
        "--margin",
        metavar="METRIC=X",
        help="A loss that would matter, in the metric's unit; may be given several times.",
    ),
]


def _called_margin_now(given: list[str] | None) -> None:
    if given:
        raise InputError("--tolerance is called --margin now: the loss of a metric that would matter")


OldMargin = Annotated[list[str] | None, typer.Option("--tolerance", hidden=True, callback=_called_margin_now)]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 where it is unclear, too.")]
Cells = Annotated[int, typer.Option("--show-cells", min=0, help="Show at most so many cells that differ.")]


def register(app: typer.Typer) -> None:
    app.command(epilog="Examples: wtb compare nightly 1ng4kb6za4xq  |  wtb compare BEFORE AFTER --margin ndcg=0.02")(
        compare
    )
    app.command(
        epilog="Examples: wtb regress sweep.yaml --baseline main  |  wtb regress sweep.yaml --baseline main --update"
    )(regress)


def compare(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A baseline, or a sweep: id, beginning of it, or name.")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another one, of the same or another workflow.")],
    margin: Margin = None,
    tolerance: OldMargin = None,
    strict: Strict = False,
    cells: Cells = 20,
    db: Db = None,
    format: FormatOption = ComparisonFormat.table,
    output: Output = None,
) -> None:
    """Show which results got worse or better between two sweeps.

    Results are paired by case, and what was changed between the sweeps is shown too. Exits with 1 where the later one
    is worse, or that cannot be told.

    See also: `wtb diff` compares two executions; `wtb regress` runs a sweep and compares it.
    """
    margins = read_margin(margin)
    database = open_database(db)
    first, second = (_baseline(database, None, one) or find_sweep(database, one) for one in (before, after))
    check_margin(database, first, second, margins)
    found = compare_sweeps(database, first, second, margins, looked_into=cells)
    if format is ComparisonFormat.table:
        put(comparison(found, width(), in_color(output), cells), output)
    else:
        put(_formatted(found, format, cells, strict), output)
    raise typer.Exit(0 if is_well(found["verdict"], strict=strict) else 1)


def regress(
    file: FileArgument,
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="NAME|SWEEP", help="A baseline, or any sweep to be held against.")
    ],
    margin: Margin = None,
    tolerance: OldMargin = None,
    strict: Strict = False,
    update: Annotated[
        bool, typer.Option("--update", help="Make it the baseline where all of that was compared, and is no worse.")
    ] = False,
    cells: Cells = 20,
    limit: LimitOption = None,
    case: CaseOption = None,
    combination: CombinationOption = None,
    max_cells: MaxCells = None,
    session: SessionOption = None,
    db: Db = None,
    format: FormatOption = ComparisonFormat.table,
    output: Output = None,
    quiet: Quiet = False,
) -> None:
    """Run a sweep and hold it against a baseline, cell by cell.

    It is quiet where nothing is different. Exits with 1 where a result got worse, that cannot be told, or a gate does
    not hold.

    See also: `wtb compare` compares two sweeps that are there.
    """
    if update and (limit or case or combination):
        raise InputError("--update makes a whole sweep the baseline; leave out --limit, --case and --combination")
    prepared = with_margin(prepare(file, limit, case, combination, max_cells, session), read_margin(margin))
    spec = prepared.bound.spec
    database = open_database(db, create=True)
    named = _baseline(database, spec.session, baseline)
    before = named or _sweep(database, spec.session, baseline)
    if update and named is None:
        raise InputError(f"--update: {baseline!r} is a sweep; expected the name of a baseline")
    check_gates(database, spec)
    after, ended = submit_and_run(database, prepared, quiet)
    matrix = judged(database, after)
    found = compare_sweeps(database, before, after, looked_into=cells)
    found |= {"baseline": baseline if named else None, "gates": matrix["gates"]}
    if format is ComparisonFormat.table:
        put(regression(found, width(), in_color(output), cells), output)
    else:
        put(_formatted(found, format, cells, strict), output)
    code = _exit_code(found, exit_code(matrix, ended), strict=strict)
    if update and code == 0:
        if left_out := _left_out(found["changed"]):
            say(
                f"baseline {baseline} stays sweep {before['id']}, of which the comparison leaves out {left_out}; "
                f"`wtb baseline set {baseline} {after['id']}` makes it the new sweep all the same"
            )
        else:
            set_baseline(database, baseline, after["id"])
            say(f"baseline {baseline} is now sweep {after['id']}")
    raise typer.Exit(code)


def _left_out(changed: Mapping[str, Any]) -> str:
    """What of the earlier sweep was not compared."""
    cases, metrics = changed["cases"], changed["metrics"]["removed"]
    counts = {
        "combination": changed["combinations"]["removed"],
        "case": len(cases["removed"]) + len(cases["changed"]),
        "metric": len(metrics),
    }
    return ", ".join(plural(count, noun) for noun, count in counts.items() if count)


def _formatted(found: Document, format: ComparisonFormat, cells: int, strict: bool) -> str:
    if format is ComparisonFormat.md:
        return as_markdown(found, cells)
    return junit.comparison(found, strict=strict) if format is ComparisonFormat.junit else as_json(found)


def read_margin(given: list[str] | None) -> dict[str, float]:
    """`--margin METRIC=X`, given any number of times. Raises InputError."""
    found = {}
    for text in given or ():
        metric, _, amount = text.rpartition("=")
        try:
            found[metric] = float(amount)
        except ValueError:
            found[metric] = math.nan
        if not metric or not 0 <= found[metric] < math.inf:
            raise InputError(f"--margin {text!r}: expected METRIC=X with X at least 0, such as ndcg=0.02")
    return found


def with_margin(prepared: Prepared, margin: Mapping[str, float]) -> Prepared:
    """A sweep with what `--margin` gives before its own. Raises InputError for what its metrics cannot have."""
    bound = prepared.bound
    if problems := margin_problems(bound, margin).values():
        raise InputError(*(f"--margin: {text}" for text in problems))
    spec = bound.spec.model_copy(update={"margin": {**bound.spec.margin, **margin}})
    return replace(prepared, bound=replace(bound, spec=spec))


def _baseline(database: Database, session: str | None, name: str) -> Document | None:
    return find_baseline(database, session_name(session), name)


def _sweep(database: Database, session: str | None, ref: str) -> Document:
    """A sweep that is no baseline. Raises InputError that says how it would become one."""
    try:
        return find_sweep(database, ref)
    except InputError:
        return named_baseline(database, session_name(session), ref)


def _exit_code(found: Mapping[str, Any], run: int, *, strict: bool) -> int:
    """0 where nothing got worse and gates hold: cells that fail as they did before are no regression."""
    if run == 130 or found["after"]["status"] != "completed":
        return run
    well = is_well(found["verdict"], strict=strict) and not found["failing"]["unpaired"]
    return 0 if well and all(passes(gate, strict=strict) for gate in found["gates"]) else 1


def is_well(verdict: str, *, strict: bool) -> bool:
    """Whether a command ends with 0 after this verdict."""
    return verdict not in ("worse", "cannot tell", *(["unclear"] if strict else []))
