"""The command that scores one output: try."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from wtb.cli import input_files, options
from wtb.cli.console import backend_elsewhere, open_context, put, put_json
from wtb.operations.drafting import evaluator_preview


def try_(
    evaluator: Annotated[
        str, typer.Argument(metavar="EVALUATOR", help="A name, or a mapping in JSON of a name to its options.")
    ],
    state: Annotated[str, typer.Option("--state", metavar="JSON", help="The output: values by key of the state.")],
    expected: Annotated[
        str | None,
        typer.Option("--expected", metavar="VALUE", help="The expected value: text, or JSON of a list or mapping."),
    ] = None,
    input: Annotated[str | None, typer.Option("--input", metavar="JSON", help="The input of the case.")] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Score an output with a built-in evaluator.

    See also: `wtb score` scores the cells of a sweep that has run.

    Example: wtb try '{"contains": {"field": "answer"}}' --state '{"answer": "It is 42."}' --expected 42
    """
    from wtb.display.text.inspect import evaluator_previews
    from wtb.planning.factors import parameter_files

    backend = backend_elsewhere(False, db) or open_context(db, prepare=False)
    document = backend.call(
        evaluator_preview.preview_evaluator,
        parameter_files.with_file_texts(_value("evaluator", evaluator), "evaluator"),
        input_files.parse_json("--state", state),
        expected=None if expected is None else _value("--expected", expected),
        input=None if input is None else input_files.parse_json("--input", input),
    )
    if format is options.Format.json:
        put_json(document, output)
    else:
        put(evaluator_previews.preview_in_words(document), output)


def _value(where: str, text: str) -> Any:
    """Return a text, or the list or mapping that it is in JSON. Raises InputError."""
    return input_files.parse_json(where, text) if text.lstrip().startswith(("{", "[")) else text
