"""Commands on results: matrix, score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wtb.cli.console import (
    Db,
    MatrixFormat,
    MatrixFormatOption,
    Output,
    SweepArgument,
    open_database,
    prints_to_stderr,
    put,
    render_matrix,
    say,
)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: wtb matrix nightly --format html -o matrix.html")(matrix)
    app.command(epilog="Example: wtb score nightly --evaluate 'exact_match: {field: answer}'")(score)


def matrix(
    sweep: SweepArgument,
    edited: Annotated[bool, typer.Option("--edited", help="Count cells, too, whose state a person edited.")] = False,
    db: Db = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
) -> None:
    """Show the comparison matrix of a sweep, finished or not."""
    from wtb.judging import judged
    from wtb.store.reading import find_sweep

    database = open_database(db)
    put(render_matrix(judged(database, find_sweep(database, sweep), edited=edited), format, output), output)


def score(
    sweep: SweepArgument,
    evaluate: Annotated[
        list[str] | None,
        typer.Option(
            "--evaluate", "-e", help="An evaluator as in a sweep file: a name, an import path, or with options."
        ),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Take the evaluators of this sweep file.")] = None,
    db: Db = None,
    format: MatrixFormatOption = MatrixFormat.table,
    output: Output = None,
) -> None:
    """Score a sweep's finished cells again, or by more evaluators, without running a node."""
    from wtb.judging import judged
    from wtb.rescoring import rescore
    from wtb.store.reading import find_sweep

    database = open_database(db)
    row = find_sweep(database, sweep)
    with prints_to_stderr():
        written = rescore(database, row, evaluate or [], file)
    say(f"{written:,} scores written")
    put(render_matrix(judged(database, find_sweep(database, row["id"])), format, output), output)
