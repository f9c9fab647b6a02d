"""The command that shows one thing in detail: a sweep, its cells or outputs, an execution, a value or a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
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


class _Asked(NamedTuple):
    """What is shown, from where, and how.

    Attributes:
        backend: Where it is.
        ref: A sweep, an execution or a checkpoint.
        format: How it is shown.
        output: The file that it is written to; None for the terminal.
    """

    backend: Backend
    ref: str
    format: options.Format
    output: Path | None


def show(
    ref: options.SweepOrExecution,
    cells: Annotated[bool, typer.Option("--cells", help="The cells of a sweep.")] = False,
    statuses: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only cells of this status; may be given several times."),
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Only cells of the case with this id.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only cells that failed, or were set aside.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", help="At most this many cells.")] = None,
    calls: Annotated[bool, typer.Option("--calls", help="Model and tool calls of an execution.")] = False,
    outputs: Annotated[bool, typer.Option("--outputs", help="Outputs of combinations side by side, by case.")] = False,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row",
            metavar="ROW",
            help="Outputs: only these rows of the matrix, by number (#) or as NODE.PARAMETER=LEVEL; repeatable.",
        ),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="KEY", help="Outputs: these keys of the state; repeatable. Of an execution: one in full."
        ),
    ] = None,
    differ: Annotated[
        list[str] | None,
        typer.Option(
            "--differ", metavar="ROW", help="Outputs: only where two rows differ; give it twice, once for each."
        ),
    ] = None,
    worst: Annotated[
        str | None, typer.Option("--worst", metavar="METRIC", help="Outputs: the worst cases by it first.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Outputs: only cases with this tag.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Outputs: only cases in which it is found.")] = None,
    wrong: Annotated[
        str | None,
        typer.Option(
            "--wrong",
            metavar="all|none",
            help="Outputs: only cases that all combinations get wrong, or none.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="With --wrong: by which metric \\[default: the one that decides].")
    ] = None,
    offset: Annotated[int | None, typer.Option("--offset", help="Outputs: skip so many cases.")] = None,
    open_it: options.Open = False,
    db: options.Db = None,
    format: options.ShowCells = options.ShownFormat.table,
    output: options.Output = None,
) -> None:
    """Show a sweep, its cells, an execution or a checkpoint.

    Of an execution it shows the path, attempts, output and state; of a checkpoint its state, files and writers.

    See also: `wtb status` says how far it is; `wtb matrix` compares the combinations; `wtb history` shows checkpoints.

    Examples: wtb show nightly --cells --failed  |  wtb show nightly --outputs --worst accuracy  |
    wtb show nightly --outputs --wrong all  |  wtb show nightly --outputs --limit 1000 --format csv -o outputs.csv  |
    wtb show nightly --cells --format csv  |  wtb show EXECUTION --calls  |  wtb show EXECUTION --key answer  |
    wtb show CHECKPOINT
    """
    is_csv = format is options.ShownFormat.csv
    asked = _Asked(open_backend(db), ref, options.Format.table if is_csv else options.Format(format.value), output)
    backend = asked.backend
    wanted = [*(statuses or ()), *(FAILED_CELLS if failed else ())]
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
    of_outputs = {name: value for name, value in of_outputs.items() if value is not None}
    if is_csv and (calls or open_it or not (cells or outputs or of_outputs)):
        raise InputError("csv is a format of cells and outputs; expected --format csv with --cells or --outputs")
    if outputs or of_outputs:
        from wtb.display.text.inspect import outputs_by_case, outputs_csv
        from wtb.operations.outputs import side_by_side

        if cells or calls or open_it or statuses:
            raise InputError("--outputs is a view of its own; give it without --cells, --status, --calls and --open")
        chosen: dict[str, Any] = {"keys": keys or (), "failed": failed, "cases": () if case is None else (case,)}
        chosen |= {} if limit is None else {"limit": limit}
        document = backend.call(side_by_side.outputs, ref, **of_outputs, **chosen)
        if is_csv:
            put(outputs_csv.outputs_csv(document), output)
        else:
            present(document, outputs_by_case.outputs, asked.format, output)
    elif is_csv:
        _write_cells(asked, statuses=wanted, case=case, limit=limit, keys=keys or ())
    elif keys:
        if len(keys) > 1:
            raise InputError(f"--key is given {len(keys)} times; expected one key, or --outputs")
        from wtb.operations.outputs import side_by_side

        put_value(backend.call(side_by_side.read_value, ref, key=keys[0], case=case), output)
    elif cells or statuses or case is not None or failed or limit is not None:
        if open_it or calls:
            option = "--open is for a sweep or an execution" if open_it else "--calls is for one execution"
            raise InputError(f"{option}; give it without --cells and its filters")
        _show_cells(asked, statuses=wanted, case=case, limit=limit)
    else:
        _show_target(asked, calls=calls, open_in=db, open_it=open_it)


def _show_target(asked: _Asked, *, calls: bool, open_it: bool, open_in: str | None) -> None:
    """Show a sweep, an execution or a checkpoint."""
    backend, ref, format, output = asked.backend, asked.ref, asked.format, asked.output
    try:
        found = backend.call(operations.show, ref, calls=calls)
    except NotFound as nothing:
        _show_checkpoint(backend, ref, nothing, is_alone=not (calls or open_it), format=format, output=output)
        return
    render: Callable[[Any, int, bool], str] = sweeps.summary
    if "execution" in found:
        from wtb.display.text.inspect import executions

        render = executions.execution
    present(found, render, format, output)
    if open_it:
        kind = "execution" if "execution" in found else "sweep"
        heading: Any = found.get(kind)
        open_page(f"/{kind}s/{heading['id']}", open_in)


def _show_cells(asked: _Asked, *, statuses: Sequence[str], case: str | None, limit: int | None) -> None:
    """Show cells of a sweep."""
    backend, ref, format, output = asked.backend, asked.ref, asked.format, asked.output
    if format is options.Format.json:
        put_cells(backend.call(operations.cells, ref, statuses=statuses, case=case, limit=limit).cells, output)
        return
    max_rows = limit or TABLE_CELLS
    listed = backend.call(operations.cells, ref, statuses=statuses, case=case, limit=max_rows + 1)
    shown = list(listed.cells)
    if not shown:
        say("no cell matches")
        return
    put(sweeps.cells(shown[:max_rows], listed.nodes, listed.metrics, width(), in_color(output)), output)
    if len(shown) > max_rows:
        say(f"only the first {max_rows:,}; more with --limit, all with --format json")


def _write_cells(
    asked: _Asked, *, statuses: Sequence[str], case: str | None, limit: int | None, keys: Sequence[str]
) -> None:
    """Write cells of a sweep as CSV, for spreadsheets and pandas."""
    from wtb.display.cell_rows import cells_as_csv

    summary: Any = asked.backend.call(operations.show, asked.ref)
    if "definition" not in summary:
        raise InputError(f"{asked.ref!r} is an execution; cells are listed of a sweep")
    listed = asked.backend.call(operations.cells, asked.ref, statuses=statuses, case=case, limit=limit)
    lines = cells_as_csv(listed.cells, summary["definition"]["vary"], listed.metrics, keys)
    put_lines(lines, asked.output)


def _show_checkpoint(
    backend: Backend,
    ref: str,
    nothing: NotFound,
    *,
    is_alone: bool,
    format: options.Format,
    output: options.Output,
) -> None:
    """Show a checkpoint, of which no sweep and no execution has the id. Raises `nothing` if there is none."""
    from wtb.display.text.inspect import history as history_text
    from wtb.operations.inspection import history

    try:
        document = backend.call(history.show_checkpoint, ref)
    except NotFound:
        raise nothing from None
    if not is_alone:
        raise InputError(f"{ref!r} is a checkpoint; --calls and --open are for sweeps and executions")
    present(document, history_text.checkpoint, format, output)
