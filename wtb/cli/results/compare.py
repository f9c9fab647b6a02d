"""Commands that hold sweeps against each other: compare, regress."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlencode

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, open_context, prints_to_stderr, put, read_row, say, width
from wtb.cli.options import Margin, read_margin
from wtb.cli.output import in_color
from wtb.cli.pages import open_page
from wtb.cli.progress import progress_display
from wtb.cli.run.outcome import say_how_it_ended
from wtb.cli.run.sweeps import prepare
from wtb.core.documents.comparison import TELLING, ComparisonDocument
from wtb.core.errors import InputError
from wtb.core.texts import plural
from wtb.display.json_text import as_json
from wtb.display.report import junit as report
from wtb.display.text import comparisons
from wtb.operations.results import comparing
from wtb.operations.results import pools as operations


class ComparisonFormat(StrEnum):
    """Formats of a comparison."""

    table = "table"
    json = "json"
    md = "md"
    junit = "junit"


FormatOption = Annotated[ComparisonFormat, typer.Option("--format", "-f", help="Output format.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 also if it is unclear.")]
Cells = Annotated[int, typer.Option("--show-cells", help="Maximum number of differing cells to show.")]


def compare(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="A baseline, or a sweep: id, beginning of it, or name.")
    ],
    after: Annotated[
        str | None,
        typer.Argument(metavar="AFTER", help="Another sweep, of any workflow. Not with --row.", show_default=False),
    ] = None,
    row: Annotated[
        str | None,
        typer.Option("--row", metavar="N|NODE=VARIANT", help="Within one sweep: a row, by its number or its variants."),
    ] = None,
    other: Annotated[
        str, typer.Option("--other", metavar="N|NODE=VARIANT", help="With --row: the row it is compared with.")
    ] = "0",
    metric: Annotated[
        str | None, typer.Option("--metric", help="With --row: by which metric \\[default: the one that decides].")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", help="With --row: at most this many cases.")] = TELLING,
    margin: Margin = None,
    strict: Strict = False,
    looked_into: Cells = 20,
    open_it: options.Open = False,
    db: options.Db = None,
    format: FormatOption = ComparisonFormat.table,
    output: options.Output = None,
) -> None:
    """Show which results got worse or better between two sweeps.

    Results are paired by case, and what was changed between the sweeps is shown too. Exits with 1 if the later one is
    worse, or if that is unknown.

    See also: `wtb diff` compares two executions; `wtb regress` runs a sweep and compares it.

    With --row, two rows of one sweep are compared over all cases: wins by case, the difference, and whether it may be
    chance.

    Examples: wtb compare nightly 1ng4kb6za4xq  |  wtb compare BEFORE AFTER --margin ndcg=0.02  |  wtb compare nightly
    --row answer=mini --other 0
    """
    if row is not None:
        if after is not None:
            raise InputError("--row compares two rows of one sweep; expected no other sweep")
        if format not in (ComparisonFormat.table, ComparisonFormat.json):
            raise InputError(f"--format {format.value} is for two sweeps; two rows have table or json")
        rows = [read_row(text) for text in (row, other)]
        pair = open_backend(db).call(comparing.compare_rows, before, *rows, metric=metric, limit=limit)
        put(as_json(pair) if format is ComparisonFormat.json else comparisons.two_rows(pair, width()), output)
        if open_it:
            numbers = {side: pair[side]["combination"] for side in ("row", "other")}
            query = urlencode({**numbers, "metric": pair["metric"]})
            open_page(f"/sweeps/{pair['sweep']['id']}/compare?{query}", db)
        return
    if after is None:
        raise InputError("only one sweep is given; expected another sweep, or --row for two rows of this one")
    comparison = open_backend(db).call(
        comparing.compare, before, after, margin=read_margin(margin), looked_into=looked_into
    )
    if format is ComparisonFormat.table:
        put(comparisons.comparison(comparison, width(), in_color(output), looked_into), output)
    else:
        put(_formatted(comparison, format, looked_into, strict), output)
    if open_it:
        open_page(f"/compare/{comparison['before']['id']}/{comparison['after']['id']}", db)
    raise typer.Exit(0 if comparing.is_well(comparison["verdict"], strict=strict) else 1)


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
    looked_into: Cells = 20,
    part: options.Part = options.WHOLE,
    session: options.Session = None,
    db: options.Db = None,
    format: FormatOption = ComparisonFormat.table,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Run a sweep and compare it with a baseline, cell by cell.

    It prints nothing if no result differs. Exits with 1 if a result got worse, if that is unknown, or if a gate
    fails.

    See also: `wtb compare` compares two sweeps that are there.

    Examples: wtb regress sweep.yaml --baseline main  |  wtb regress sweep.yaml --baseline main --update
    """
    parsed = read_margin(margin)
    prepared = prepare(file, part, session)
    context = open_context(db, create=True)
    with prints_to_stderr(), progress_display(quiet) as show:
        done = comparing.regress(
            context,
            prepared,
            baseline,
            margin=parsed,
            update=update,
            strict=strict,
            looked_into=looked_into,
            progress=show,
        )
    say_how_it_ended(done.ran)
    comparison, now = done.comparison, done.ran.sweep.id
    if format is ComparisonFormat.table:
        put(comparisons.regression(comparison, width(), in_color(output), looked_into), output)
    else:
        put(_formatted(comparison, format, looked_into, strict), output)
    if done.updated:
        say(f"baseline {baseline} is now sweep {now}")
    # A new baseline would also hide from later comparisons what this one had to leave out.
    elif done.left_out:
        say(
            f"baseline {baseline} stays sweep {done.reference.sweep.id}, of which the comparison leaves out "
            f"{done.left_out}; `wtb baseline set {shlex.quote(baseline)} {now}` makes it the new sweep all the same"
        )
    raise typer.Exit(
        130 if done.ran.interrupted else 0 if comparing.passes_regression(comparison, strict=strict) else 1
    )


def _formatted(comparison: ComparisonDocument, format: ComparisonFormat, cells: int, strict: bool) -> str:
    if format is ComparisonFormat.md:
        return comparisons.as_markdown(comparison, cells)
    return report.comparison(comparison, strict=strict) if format is ComparisonFormat.junit else as_json(comparison)


def pool(
    refs: Annotated[
        list[str], typer.Argument(metavar="SWEEP...", help="Two sweeps or more: ids, beginnings of ids, or names.")
    ],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="The name of the pool.")] = None,
    db: options.Db = None,
) -> None:
    """Pool several sweeps that repeat each other into one.

    They ran the same rows over the same cases, and their runs are its repeats. Nothing runs: a case's score is the mean
    over all runs, so chance weighs less. The pool is shown and compared like any sweep, and cannot be changed. Its
    sweeps stay as they are, and can be deleted after the pool.

    See also: `wtb matrix` lists the sweeps that can be pooled.

    Example: wtb pool 1ng8taw 1ng8tbx 1ng8tcy --name three-nights
    """
    pooled = open_backend(db).call(operations.pool, refs, name=name)
    put(
        f"pool {pooled.name} ({pooled.id}): {plural(len(pooled.sweeps), 'sweep')}, {plural(pooled.repeats, 'repeat')}, "
        f"{plural(pooled.cells, 'cell')}; `wtb matrix {pooled.id}` shows it"
    )
