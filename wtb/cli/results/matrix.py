"""Commands on results: matrix, score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wtb.analysis import gates
from wtb.cli import options
from wtb.cli.console import open_database, prints_to_stderr, put, render_matrix, say
from wtb.core.scoring.scales import read_failure_score
from wtb.operations import rescore
from wtb.store.read import queries


def matrix(
    sweep: options.Sweep,
    edited: Annotated[bool, typer.Option("--edited", help="Count cells, too, whose state a person edited.")] = False,
    on_failure: Annotated[
        str | None,
        typer.Option(
            help="What a failed cell counts as, in place of what the sweep says: a score, or left_out.",
            metavar="SCORE",
        ),
    ] = None,
    db: options.Db = None,
    format: options.ShowMatrix = options.MatrixFormat.table,
    output: options.Output = None,
) -> None:
    """Show the figures of every combination, with intervals.

    This is the comparison matrix, of a sweep that is finished or not: scores, costs and durations, and which is best.

    See also: `wtb report` writes it with charts and cases for others; `wtb status` says how far the sweep is.

    Example: wtb matrix nightly --format html -o matrix.html
    """
    counts_as = None if on_failure is None else read_failure_score("--on-failure", on_failure)
    database = open_database(db)
    document = gates.judged(database, queries.find_sweep(database, sweep), edited=edited, on_failure=counts_as)
    put(render_matrix(document, format, output), output)


def score(
    sweep: options.Sweep,
    evaluate: Annotated[
        list[str] | None,
        typer.Option(
            "--evaluate", "-e", help="An evaluator as in a sweep file: a name, an import path, or with options."
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Take the evaluators of this sweep file.")] = None,
    db: options.Db = None,
    format: options.ShowMatrix = options.MatrixFormat.table,
    output: options.Output = None,
) -> None:
    """Score finished cells again, without running a node.

    The evaluators are those of the sweep, or more.

    See also: `wtb matrix` shows the scores; `wtb retry` runs failed cells again.

    Example: wtb score nightly --evaluate 'exact_match: {field: answer}'
    """
    database = open_database(db)
    row = queries.find_sweep(database, sweep)
    with prints_to_stderr():
        written = rescore.rescore(database, row, evaluate or [], file)
    say(f"{written:,} scores written")
    put(render_matrix(gates.judged(database, queries.find_sweep(database, row["id"])), format, output), output)
