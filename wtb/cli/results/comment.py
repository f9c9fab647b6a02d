"""The command `comment`: what people write about cells."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, width
from wtb.cli.output import put_as
from wtb.core.errors import InputError
from wtb.display.text.inspect import outputs_by_case
from wtb.operations.outputs import commenting


def comment(
    ref: options.Sweep,
    case: Annotated[str | None, typer.Argument(metavar="CASE", help="The case, by its id.")] = None,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The comment; without it, list comments.")] = None,
    row: Annotated[int | None, typer.Option("--row", metavar="ROW", help="The row of the matrix, from 0.")] = None,
    repeat: Annotated[int | None, typer.Option("--repeat", help="Which repeat of the case, from 0.")] = None,
    number: Annotated[
        int | None, typer.Option("--delete", metavar="NUMBER", help="Delete the comment with this number.")
    ] = None,
    db: options.Db = None,
    format: options.Show = options.Format.table,
    output: options.Output = None,
) -> None:
    """Comment on a cell, list comments, or delete one of yours.

    Everyone who may read the sweep sees the comments: here, in `wtb show --outputs`, on the pages and in the report.

    See also: `wtb label` rates answers; `wtb show SWEEP --outputs` shows outputs with their comments.

    Examples: wtb comment nightly refund-2 "Right, but rude" --row 1  |  wtb comment nightly  |
    wtb comment nightly --delete 3
    """
    backend = open_backend(db)
    if number is not None:
        if any(one is not None for one in (case, text, row, repeat)):
            raise InputError("--delete takes the number of a comment alone; give it without a case, text, --row")
        deleted = backend.call(commenting.delete_comment, ref, number)
        put_as(deleted, f"comment {number} deleted\n", format, output)
    elif text is None:
        if row is not None or repeat is not None:
            raise InputError("--row and --repeat name the cell of a new comment; give its text, too")
        found = backend.call(commenting.list_comments, ref, case=case)
        put_as(found, outputs_by_case.comments(found, width()), format, output)
    else:
        assert case is not None, "the text comes after the case"
        made = backend.call(commenting.add_comment, ref, case, text, row=row or 0, repeat=repeat or 0)
        put_as(made, f"comment {made['number']} on case {made['case']}, row {made['row']}\n", format, output)
