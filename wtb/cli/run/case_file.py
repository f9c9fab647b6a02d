"""The command that reads a file of cases: cases."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from wtb.cli import input_files, options
from wtb.cli.console import backend_elsewhere, open_context, prints_to_stderr, width
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.operations.running import previews

Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="KEY=HEADING", help="The heading of a key; ignore=HEADING skips a column."),
]


def cases(
    cases: Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl, .csv, .json or .xlsx file.")],
    workflow: Annotated[
        str | None, typer.Option("--workflow", metavar="NAME", help="The workflow that they are inputs of.")
    ] = None,
    sweep: Annotated[str | None, typer.Option("--sweep", metavar="SWEEP", help="The sweep to add them to.")] = None,
    columns: Columns = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Show how a sweep would read a file of cases.

    Headings that are no keys are offered as a mapping: copy it to `columns` of the sweep file. It exits with 1 if
    something is wrong.

    See also: `wtb plan` checks the whole sweep.

    Examples: wtb cases cases.xlsx --workflow shop  |  wtb cases cases.csv --columns 'expected=Right answer'
    """
    from wtb.display.text import added_cases

    with prints_to_stderr():
        # The database may be missing: only --sweep needs one.
        backend = backend_elsewhere(False, db) or open_context(db, prepare=False)
        document = backend.call(
            previews.read_case_file, cases, workflow=workflow, sweep=sweep, columns=read_columns(columns)
        )
    put_as(document, added_cases.render(document, width()), form)
    if document["problems"]:
        raise typer.Exit(1)


def read_columns(texts: Iterable[str] | None) -> dict[str, list[str]] | None:
    """Return which headings are which key; None if none are given. Raises InputError."""
    headings_by_key: dict[str, list[str]] = {}
    for text in texts or ():
        key, equals, heading = text.partition("=")
        if not (key.strip() and equals and heading.strip()):
            raise InputError(f"--columns {text!r}: expected KEY=HEADING, such as expected=Answer", argument="columns")
        headings_by_key.setdefault(key.strip(), []).append(heading)
    return headings_by_key or None


def try_(
    evaluator: Annotated[
        str, typer.Argument(metavar="EVALUATOR", help="A name, or a JSON mapping of a name to its options.")
    ],
    state: Annotated[str, typer.Option("--state", metavar="JSON", help="The output: values by key of the state.")],
    expected: Annotated[
        str | None,
        typer.Option("--expected", metavar="VALUE", help="The expected value: text, or JSON of a list or mapping."),
    ] = None,
    input: Annotated[str | None, typer.Option("--input", metavar="JSON", help="The input of the case.")] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Score an output with a built-in evaluator.

    See also: `wtb score` scores the cells of a sweep that has run.

    Example: wtb try '{"contains": {"field": "answer"}}' --state '{"answer": "It is 42."}' --expected 42
    """
    from wtb.display.text import added_cases
    from wtb.planning import parameter_files

    backend = backend_elsewhere(False, db) or open_context(db, prepare=False)
    document = backend.call(
        previews.preview_evaluator,
        parameter_files.with_file_texts(_value("evaluator", evaluator), "evaluator"),
        input_files.parse_json("--state", state),
        expected=None if expected is None else _value("--expected", expected),
        input=None if input is None else input_files.parse_json("--input", input),
    )
    put_as(document, added_cases.preview_in_words(document), form)


def _value(where: str, text: str) -> Any:
    """Return a text, or the list or mapping that it is in JSON. Raises InputError."""
    # Only lists and mappings are JSON, so that 42 and true stay text.
    return input_files.parse_json(where, text) if text.lstrip().startswith(("{", "[")) else text
