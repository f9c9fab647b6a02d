"""Commands that hold sweeps against each other: compare, regress."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wtb.analysis import gates
from wtb.analysis.comparison import compare as analysis
from wtb.analysis.comparison import verdicts
from wtb.cli import options
from wtb.cli.console import as_json, open_database, put, say, width
from wtb.cli.output import in_color
from wtb.cli.run.sweeps import exit_code, only, prepare, submit_and_run
from wtb.core.errors import InputError
from wtb.core.texts import plural
from wtb.display.report import junit as report
from wtb.display.text import comparisons
from wtb.planning import checks
from wtb.store.limits import sessions
from wtb.store.read import baselines, queries

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
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 where it is unclear, too.")]
Cells = Annotated[int, typer.Option("--show-cells", min=0, help="Show at most so many cells that differ.")]


def compare(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A baseline, or a sweep: id, beginning of it, or name.")
    ],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another one, of the same or another workflow.")],
    margin: Margin = None,
    strict: Strict = False,
    cells: Cells = 20,
    db: options.Db = None,
    format: FormatOption = ComparisonFormat.table,
    output: options.Output = None,
) -> None:
    """Show which results got worse or better between two sweeps.

    Results are paired by case, and what was changed between the sweeps is shown too. Exits with 1 where the later one
    is worse, or if that is unknown.

    See also: `wtb diff` compares two executions; `wtb regress` runs a sweep and compares it.

    Examples: wtb compare nightly 1ng4kb6za4xq  |  wtb compare BEFORE AFTER --margin ndcg=0.02
    """
    margins = read_margin(margin)
    database = open_database(db)
    first, second = (_baseline(database, None, one) or queries.find_sweep(database, one) for one in (before, after))
    analysis.check_margin(database, first, second, margins)
    found = analysis.compare_sweeps(database, first, second, margins, looked_into=cells)
    if format is ComparisonFormat.table:
        put(comparisons.comparison(found, width(), in_color(output), cells), output)
    else:
        put(_formatted(found, format, cells, strict), output)
    raise typer.Exit(0 if is_well(found["verdict"], strict=strict) else 1)


def regress(
    file: options.SweepFile,
    baseline: Annotated[
        str, typer.Option("--baseline", metavar="NAME|SWEEP", help="A baseline, or any sweep to compare with.")
    ],
    margin: Margin = None,
    strict: Strict = False,
    update: Annotated[
        bool, typer.Option("--update", help="Make it the baseline if everything was compared and nothing is worse.")
    ] = False,
    cells: Cells = 20,
    limit: options.Limit = None,
    case: options.Case = None,
    combination: options.Combination = None,
    max_cells: options.MaxCells = None,
    session: options.Session = None,
    db: options.Db = None,
    format: FormatOption = ComparisonFormat.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a sweep and hold it against a baseline, cell by cell.

    It is quiet where nothing is different. Exits with 1 if a result got worse, if that is unknown, or if a gate
    fails.

    See also: `wtb compare` compares two sweeps that are there.

    Examples: wtb regress sweep.yaml --baseline main  |  wtb regress sweep.yaml --baseline main --update
    """
    if update and (limit or case or combination):
        raise InputError("--update makes a whole sweep the baseline; leave out --limit, --case and --combination")
    prepared = with_margin(prepare(file, only(limit, case, combination), max_cells, session), read_margin(margin))
    spec = prepared.bound.spec
    database = open_database(db, create=True)
    named = _baseline(database, spec.session, baseline)
    before = named or _sweep(database, spec.session, baseline)
    if update and named is None:
        raise InputError(f"--update: {baseline!r} is a sweep; expected the name of a baseline")
    gates.check_gates(database, spec)
    after, ended = submit_and_run(database, prepared, quiet)
    matrix = gates.judged(database, after)
    found = analysis.compare_sweeps(database, before, after, looked_into=cells)
    found |= {"baseline": baseline if named else None, "gates": matrix["gates"]}
    if format is ComparisonFormat.table:
        put(comparisons.regression(found, width(), in_color(output), cells), output)
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
            baselines.set_baseline(database, baseline, after["id"])
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
        return comparisons.as_markdown(found, cells)
    return report.comparison(found, strict=strict) if format is ComparisonFormat.junit else as_json(found)


def read_margin(texts: list[str] | None) -> dict[str, float]:
    """`--margin METRIC=X`, given any number of times. Raises InputError."""
    found = {}
    for text in texts or ():
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
    if problems := checks.margin_problems(bound, margin).values():
        raise InputError(*(f"--margin: {text}" for text in problems))
    spec = bound.spec.model_copy(update={"margin": {**bound.spec.margin, **margin}})
    return replace(prepared, bound=replace(bound, spec=spec))


def _baseline(database: Database, session: str | None, name: str) -> Document | None:
    return baselines.find_baseline(database, sessions.session_name(session), name)


def _sweep(database: Database, session: str | None, ref: str) -> Document:
    """A sweep that is no baseline. Raises InputError that says how it would become one."""
    try:
        return queries.find_sweep(database, ref)
    except InputError:
        return baselines.named_baseline(database, sessions.session_name(session), ref)


def _exit_code(found: Mapping[str, Any], run: int, *, strict: bool) -> int:
    """0 where nothing got worse and gates hold: cells that fail as they did before are no regression."""
    if run == 130 or found["after"]["status"] != "completed":
        return run
    well = is_well(found["verdict"], strict=strict) and not found["failing"]["unpaired"]
    return 0 if well and all(verdicts.passes(gate, strict=strict) for gate in found["gates"]) else 1


def is_well(verdict: str, *, strict: bool) -> bool:
    """Return whether a command ends with 0 after this verdict."""
    return verdict not in ("worse", "cannot tell", *(["unclear"] if strict else []))
