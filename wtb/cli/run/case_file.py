"""The command that reads a file of cases: cases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import backend_elsewhere, open_context, prints_to_stderr, put, put_json, width
from wtb.core.errors import InputError
from wtb.operations.drafting import reading_cases

Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="KEY=HEADING", help="Which heading is which key; ignore=HEADING for none."),
]


def cases(
    cases: Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl, .csv, .json or .xlsx file.")],
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="The workflow whose inputs they are.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option("--sweep", metavar="SWEEP", help="The sweep that they are to be added to.")
    ] = None,
    columns: Columns = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Show how a sweep would read a file of cases.

    Headings that are no keys are offered as a mapping: copy it to `columns` of the sweep file. It exits with 1 if
    something is wrong.

    See also: `wtb plan` checks the whole sweep.

    Examples: wtb cases cases.xlsx --workflow shop  |  wtb cases cases.csv --columns 'expected=Right answer'
    """
    from wtb.display.text.inspect import case_tables

    with prints_to_stderr():
        backend = backend_elsewhere(False, db) or open_context(db, prepare=False)
        document = backend.call(
            reading_cases.read_case_file,
            cases,
            workflow=workflow,
            sweep=sweep,
            columns=read_columns(columns),
        )
    if format is options.Format.json:
        put_json(document, output)
    else:
        put(case_tables.render(document, width()), output)
    if document["problems"]:
        raise typer.Exit(1)


def read_columns(texts: Iterable[str] | None) -> dict[str, list[str]] | None:
    """Return which headings are which key; None if nothing is said. Raises InputError."""
    found: dict[str, list[str]] = {}
    for text in texts or ():
        key, equals, heading = text.partition("=")
        if not (key.strip() and equals and heading.strip()):
            raise InputError(f"--columns {text!r}: expected KEY=HEADING, such as expected=Answer", argument="columns")
        found.setdefault(key.strip(), []).append(heading)
    return found or None
