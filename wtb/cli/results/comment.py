"""Commands on what people write about cells: comment add, comment list, comment delete."""

from __future__ import annotations

from typing import Annotated

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, width
from wtb.cli.output import put_as
from wtb.display.text import outputs
from wtb.operations.results import commenting


def add(
    ref: options.Sweep,
    case: Annotated[str, typer.Argument(metavar="CASE", help="Id of the case.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The comment.")],
    row: Annotated[int, typer.Option("--row", metavar="ROW", help="The row of the matrix, from 0.")] = 0,
    repeat: Annotated[int, typer.Option("--repeat", help="Which repeat of the case, from 0.")] = 0,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Comment on a cell.

    Everyone who may read the sweep sees the comments: in `wtb comment list`, in `wtb show --outputs`, on the pages and
    in the report.

    See also: `wtb label answer` rates answers; `wtb show SWEEP --outputs` shows outputs with their comments.

    Example: wtb comment add nightly refund-2 "Right, but rude" --row 1
    """
    added = open_backend(db).call(commenting.add_comment, ref, case, text, row=row, repeat=repeat)
    put_as(added, f"comment {added['number']} on case {added['case']}, row {added['row']}\n", form)


def list_(
    ref: options.Sweep,
    case: Annotated[str | None, typer.Argument(metavar="CASE", help="Only those on this case, by its id.")] = None,
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """List the comments on the cells of a sweep.

    Example: wtb comment list nightly
    """
    comments = open_backend(db).call(commenting.list_comments, ref, case=case)
    put_as(comments, outputs.comments(comments, width()), form)


def delete(
    ref: options.Sweep,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The number of the comment, as it is listed.")],
    db: options.Db = None,
    form: options.Form = options.TABLE,
) -> None:
    """Delete a comment of yours.

    Example: wtb comment delete nightly 3
    """
    deleted = open_backend(db).call(commenting.delete_comment, ref, number)
    put_as(deleted, f"comment {number} deleted\n", form)


COMMENT = {"add": add, "list": list_, "delete": delete}
