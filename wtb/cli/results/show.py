"""The command that shows one thing in detail: a sweep, its cells or outputs, an execution, a value or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from wtb.cli import options
from wtb.cli.console import open_backend, put, read_row, say, width
from wtb.cli.output import in_color, present, put_cells, put_lines, put_value
from wtb.cli.pages import open_page
from wtb.core.errors import InputError, NotFound
from wtb.core.status import FAILED_CELLS
from wtb.display.text import sweeps
from wtb.operations.inspection import sweeps as operations

if TYPE_CHECKING:
    from wtb.operations.context import Backend


TABLE_CELLS = 100  # rows of a table of cells, unless --limit says otherwise


class _Request(NamedTuple):
    """The arguments that all forms of `wtb show` share.

    Attributes:
        backend: The database or server to read from.
        ref: A sweep, an execution or a checkpoint.
        form: The format of the output, and the file that it is written to.
    """

    backend: Backend
    ref: str
    form: options.Form


def show(
    ref: options.SweepOrExecution,
    cells: Annotated[bool, typer.Option("--cells", help="The cells of a sweep.")] = False,
    statuses: Annotated[
        list[str] | None, typer.Option("--status", metavar="STATUS", help="Only cells of this status; repeatable.")
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Only cells of the case with this id.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only cells that failed, or were set aside.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="Maximum number of cells.")] = None,
    calls: Annotated[bool, typer.Option("--calls", help="Model and tool calls of an execution.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="Outputs of combinations side by side, by case.")] = False,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            metavar="ROW",
            help="Outputs: only these rows, by number (#) or as NODE.PARAMETER=LEVEL; repeatable.",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", metavar="KEY", help="Outputs: keys to show; repeatable. Of an execution: one key."),
    ] = None,
    differ: Annotated[
        list[str] | None,
        typer.Option("--differ", metavar="ROW", help="Outputs: only cases in which two rows differ; give it twice."),
    ] = None,
    worst: Annotated[
        str | None, typer.Option("--worst", metavar="METRIC", help="Outputs: the worst cases by it first.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Outputs: only cases with this tag.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Outputs: only cases that contain this text.")] = None,
    wrong: Annotated[
        str | None,
        typer.Option(
            "--wrong", metavar="all|none", help="Outputs: only cases that all combinations get wrong, or none."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="With --wrong: by which metric \\[default: the one that decides].")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", help="Outputs: number of cases to skip.")] = None,
    open_it: options.Open = False,
    db: options.Db = None,
    format: options.ShowCells = options.ShownFormat.table,
    output: options.Output = None,
) -> None:
    """Show a sweep, its cells, an execution or a checkpoint.

    Of an execution it shows the path, attempts, output and state; of a checkpoint its state, files and writers.

    See also: `wtb status` shows how far it is; `wtb matrix` compares the combinations; `wtb history` shows checkpoints.

    Examples: wtb show nightly --cells --failed  |  wtb show nightly --outputs --worst accuracy  |
    wtb show nightly --outputs --wrong all  |  wtb show nightly --outputs --limit 1000 --format csv -o outputs.csv  |
    wtb show nightly --cells --format csv  |  wtb show EXECUTION --calls  |  wtb show EXECUTION --key answer  |
    wtb show CHECKPOINT
    """
    is_csv = format is options.ShownFormat.csv
    form = options.Form(options.Format.table if is_csv else options.Format(format.value), output)
    backend = open_backend(db)
    request = _Request(backend, ref, form)
    cell_statuses = [*(statuses or ()), *(FAILED_CELLS if failed else ())]
    of_outputs: dict[str, Any] = {
        "rows": rows and [read_row(row) for row in rows],
        "differ": differ and [read_row(row) for row in differ],
        "worst": worst,
        "tag": tag,
        "text": text,
        "wrong": wrong,
        "metric": metric,
        "offset": offset,
    }
    of_outputs = {name: option for name, option in of_outputs.items() if option is not None}
    if is_csv and (calls or open_it or not (cells or outputs or of_outputs)):
        raise InputError("csv is a format of cells and outputs; expected --format csv with --cells or --outputs")
    if outputs or of_outputs:
        from wtb.display import csv
        from wtb.display.text import outputs as output_tables
        from wtb.operations.results import side_by_side

        if cells or calls or open_it or statuses:
            raise InputError(
                "--outputs is given with another view; expected it without --cells, --status, --calls and --open"
            )
        selection: dict[str, Any] = {"keys": keys or (), "failed": failed, "cases": () if case is None else (case,)}
        selection |= {} if limit is None else {"limit": limit}
        document = backend.call(side_by_side.outputs, ref, **of_outputs, **selection)
        if is_csv:
            put(csv.outputs_csv(document), output)
        else:
            present(document, output_tables.outputs, form)
    elif is_csv:
        _write_cells(request, statuses=cell_statuses, case=case, limit=limit, keys=keys or ())
    elif keys:
        if len(keys) > 1:
            raise InputError(f"--key is given {len(keys)} times; expected one key, or --outputs")
        from wtb.operations.results import side_by_side

        put_value(backend.call(side_by_side.read_value, ref, key=keys[0], case=case), output)
    elif cells or statuses or case is not None or failed or limit is not None:
        if open_it or calls:
            option = "--open is for a sweep or an execution" if open_it else "--calls is for one execution"
            raise InputError(f"{option}; give it without --cells and its filters")
        _show_cells(request, statuses=cell_statuses, case=case, limit=limit)
    else:
        _show_target(request, calls=calls, open_in=db, open_it=open_it)


def _show_target(request: _Request, *, calls: bool, open_it: bool, open_in: str | None) -> None:
    """Show a sweep, an execution or a checkpoint."""
    backend, ref, form = request
    try:
        document = backend.call(operations.show, ref, calls=calls)
    # The error for an unknown id names sweeps and executions, so it is kept until no checkpoint has the id, either.
    except NotFound as nothing:
        _show_checkpoint(request, nothing, is_alone=not (calls or open_it))
        return
    render: Callable[[Any, int, bool], str] = sweeps.summary
    if "execution" in document:
        from wtb.display.text import executions

        render = executions.execution
    present(document, render, form)
    if open_it:
        kind = "execution" if "execution" in document else "sweep"
        heading: Any = document.get(kind)
        open_page(f"/{kind}s/{heading['id']}", open_in)


def _show_cells(request: _Request, *, statuses: Sequence[str], case: str | None, limit: int | None) -> None:
    """Show cells of a sweep."""
    backend, ref, form = request
    if form.is_json:
        put_cells(backend.call(operations.cells, ref, statuses=statuses, case=case, limit=limit).cells, form.output)
        return
    max_rows = limit or TABLE_CELLS
    # One cell more than is printed shows whether there are more.
    listed = backend.call(operations.cells, ref, statuses=statuses, case=case, limit=max_rows + 1)
    cells = list(listed.cells)
    if not cells:
        say("no cell matches")
        return
    put(sweeps.cells(cells[:max_rows], listed.nodes, listed.metrics, width(), in_color(form.output)), form.output)
    if len(cells) > max_rows:
        say(f"only the first {max_rows:,}; more with --limit, all with --format json")


def _write_cells(
    request: _Request, *, statuses: Sequence[str], case: str | None, limit: int | None, keys: Sequence[str]
) -> None:
    """Write cells of a sweep as CSV, for spreadsheets and pandas."""
    from wtb.display.csv import cells_as_csv

    summary: Any = request.backend.call(operations.show, request.ref)
    if "definition" not in summary:
        raise InputError(f"{request.ref!r} is an execution; cells are listed of a sweep")
    listed = request.backend.call(operations.cells, request.ref, statuses=statuses, case=case, limit=limit)
    lines = cells_as_csv(listed.cells, summary["definition"]["vary"], listed.metrics, keys)
    put_lines(lines, request.form.output)


def _show_checkpoint(request: _Request, nothing: NotFound, *, is_alone: bool) -> None:
    """Show a checkpoint, of which no sweep and no execution has the id. Raises `nothing` if there is none."""
    from wtb.display.text import history as history_text
    from wtb.operations.inspection import executions as execution_operations

    try:
        document = request.backend.call(execution_operations.show_checkpoint, request.ref)
    except NotFound:
        raise nothing from None
    if not is_alone:
        raise InputError(f"{request.ref!r} is a checkpoint; --calls and --open are for sweeps and executions")
    present(document, history_text.checkpoint, request.form)
