"""The matrix in a terminal: the answer first, then as much of the evidence as the width allows."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wtb.core import texts
from wtb.core.texts import cut_one
from wtb.display import failure_causes
from wtb.display.matrix import columns, figures, gates, people, recommendation, sentences, summary
from wtb.display.matrix.columns import Column
from wtb.display.pivot import row_view

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


_HEADER_MOST = 14
_VIEWED = 200  # rows of a table that somebody filtered, sorted or grouped
Shown = tuple[list["RowDocument"], list[Column], int]


def render(document: MatrixDocument, width: int = 80, color: bool = False, *, warnings: bool = False) -> str:
    """The matrix as text.

    Args:
        document: The matrix.
        width: Columns of the terminal.
        color: Use ANSI colours.
        warnings: Show all warnings; by default those that could change the decision, and how many more there are.

    Returns:
        Lines of at most `width` columns.
    """
    console = Console(
        file=io.StringIO(),
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        legacy_windows=False,
    )
    sweep, metrics = document["sweep"], summary.metric_names(document)
    with console.capture() as capture:
        console.print(Text(texts.printable(f"{sweep['name']} ({sweep['status']})"), style="bold"))
        for number, line in enumerate(recommendation.lines(document)):
            console.print(Text(line, style="bold" if number == 0 else ""))
        for gate, line in zip(gates.found_in(document), gates.lines(gates.found_in(document)), strict=True):
            console.print(Text(line, style="green" if gate["holds"] else "bold red"))
        _print_tables(console, document, metrics)
        clear = [metric in document["best"] and document["best"][metric]["clear"] for metric in metrics]
        for answer, is_clear in zip_longest(sentences.answers(document), clear):
            console.print(Text(answer, style="green" if is_clear else ""))
        for line in people.lines(document):
            console.print(Text(line))
        visible, more = recommendation.warnings(document, all_of_them=warnings)
        for warning in visible:
            console.print(Text(f"Warning: {texts.printable(warning)}", style="yellow"))
        if more:
            console.print(Text(more, style="yellow"))
        for sentence in [*map(texts.printable, document.get("effects", [])), *sentences.closing(document)]:
            console.print(Text(sentence))
        for line in failure_causes.lines(document["failures"], sweep["id"], apart=True):
            console.print(Text(line, style="red"))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _print_tables(console: Console, document: MatrixDocument, metrics: list[str]) -> None:
    """Print the tables, and below them what their columns mean and what a view leaves out."""
    every = len(row_view.viewed_rows(document, None))
    tables = _tables(document, metrics, console.width) if every else []
    for rows, shown, top in tables:
        console.print()
        console.print(_table(document, rows, shown, top))
    shown = [column for _, columns_, _ in tables for column in columns_]
    legend = dict.fromkeys(column.legend for column in shown if column.legend and not column.is_name)
    names = dict.fromkeys(column.legend for column in shown if column.legend and column.is_name)
    missing = every - min((len(rows) for rows, _, _ in tables), default=every)
    for line in (*names, sentences.left_out(document, missing), " ".join(legend)):
        if line:
            console.print(Text(line, style="dim"))
    for line in row_view.words(document):
        console.print(Text(line, style="cyan"))
    if tables:
        console.print()


def _tables(document: MatrixDocument, metrics: list[str], width: int) -> list[Shown]:
    """One table for several metrics where those fit in the width, else one for each.

    Each is its rows, its columns, and after how many rows some are left out.
    """
    if len(metrics) > 1 and (together := _together(document, metrics, width)):
        return together
    tables: list[Shown] = []
    for metric in summary.tabled(document):
        rows, top = _best_rows(document, metrics, metric, first=not tables)
        marks = [_stop_mark(row) or (summary.mark(document, row, metric) if metric is not None else "") for row in rows]
        front = [Column("", marks)] if any(marks) else []
        shown, _ = _fit(document, rows, front, _of_one(document, rows, metric), width)
        tables.append((rows, shown, top))
    return tables


def _together(document: MatrixDocument, metrics: list[str], width: int) -> list[Shown]:
    """Tables of as many metrics as fit with their means and differences; none where no two do."""
    tables: list[Shown] = []
    remaining = metrics
    while remaining:
        rows, top = _best_rows(document, metrics, metrics[0], first=not tables)
        for size in range(len(remaining), 0, -1):
            columns_ = _of_several(document, rows, remaining[:size], spent=not tables)
            shown, fits = _fit(document, rows, _exploratory(rows), columns_, width)
            if fits:
                break
        if not fits or (size == 1 and not tables):
            return []
        tables.append((rows, shown, top))
        remaining = remaining[size:]
    return tables


def _fit(
    document: MatrixDocument, rows: list[RowDocument], front: list[Column], others: list[Column], width: int
) -> tuple[list[Column], bool]:
    """Columns as `columns.fit` chooses them, with the numbers of rows if that costs no other column, or for a view."""
    shown, fits = columns.fit(document, rows, [*_numbers(document, rows), *front], others, width)
    if "view" in document:
        return shown, fits
    without, is_fitting = columns.fit(document, rows, front, others, width)
    is_dearer = len(shown) - len(_numbers(document, rows)) < len(without)
    return (without, is_fitting) if is_dearer or fits < is_fitting else (shown, fits)


def _numbers(document: MatrixDocument, rows: Sequence[RowDocument]) -> list[Column]:
    """A column with the numbers that options such as `--row` and `--baseline` take, if there are several rows."""
    numbers = {id(row): number for number, row in enumerate(document["rows"])}
    return [Column("#", [str(numbers[id(row)]) for row in rows])] if len(numbers) > 1 else []


def _exploratory(rows: Sequence[RowDocument]) -> list[Column]:
    """A column that tells rows apart which were added after results were seen or stopped, where there are any."""
    marks = ["exploratory" if row.get("exploratory") else _stop_mark(row) for row in rows]
    return [Column("", marks)] if any(marks) else []


def _stop_mark(row: RowDocument) -> str:
    """Return `stopped after 9`, as `n` shows; empty for other rows. A warning names who stopped it."""
    return f"stopped after {row['stopped']['cases']:,}" if row.get("stopped") else ""


def _best_rows(
    document: MatrixDocument, metrics: list[str], metric: str | None, *, first: bool
) -> tuple[list[RowDocument], int]:
    """The rows of a table, best first by a metric, and after how many some are left out: fewer but in the first."""
    if "view" in document:
        rows = row_view.viewed_rows(document, metric)
        return summary.shortened(document, rows, _VIEWED, _VIEWED), _VIEWED
    top = summary.TOP if first else summary.FEW
    many = summary.MANY if first else summary.MANY // max(1, len(metrics))
    return summary.shortened(document, summary.ranked(document, metric), many, top), top


def _table(document: MatrixDocument, rows: list[RowDocument], shown: list[Column], top: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, columns.GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for column in shown:
        left = column.is_name or not column.header
        table.add_column(
            Text(column.header),
            justify="left" if left else "right",
            no_wrap=not column.is_name,
            overflow="fold",
        )
    firsts = {id(document["rows"][number]) for number in row_view.first_of_groups(document)}
    for i, row in enumerate(rows):
        if i == top and len(rows) < len(row_view.viewed_rows(document, None)):
            table.add_row(Text("⋮"))
        if id(row) in firsts:
            table.add_section()
        is_best = any(summary.star(document, row, metric) == "★" for metric in document["best"])
        style = "bold green" if is_best else "cyan" if summary.is_baseline(document, row) else ""
        table.add_row(*(Text(column.cells[i]) for column in shown), style=style)
    return table


def _of_one(document: MatrixDocument, rows: list[RowDocument], metric: str | None) -> list[Column]:
    """The columns for one metric, with all its statistics."""
    if metric is None:
        return [*_counts(document, rows), *_spent(document, rows)]
    digits = figures.decimals(document, metric)
    estimates = [summary.estimate(row, metric) for row in rows]
    shown = [Column(_header(document, metric), [figures.number(each.get("mean"), digits) for each in estimates])]
    if any(each.get("ci") for each in estimates):
        halves = [None if each["ci"] is None else (each["ci"][1] - each["ci"][0]) / 2 for each in estimates]
        cells = ["" if half is None else f"±{figures.number(half, digits)}" for half in halves]
        legend = "±: half the width of the mean's 95% interval."
        shown.append(Column("±", cells, columns.INTERVAL, legend=legend))
    shown += _within(document, rows, metric)
    shown += _differences(document, rows, metric)
    if any(each.get("p_adjusted") is not None for each in estimates):
        tested = [each.get("p_adjusted") for each in estimates]
        cells = ["" if p is None else figures.probability(p) for p in tested]
        p = summary.heading(document, "p")
        of = f"{texts.printable(metric)}'s Δ" if summary.is_typical(document, metric) else "Δ"
        legend = f"{p}: of {of}, by {summary.difference_words(document, metric)[1]}, Holm-corrected."
        shown.append(Column(p, cells, columns.SECONDARY, legend=legend))
    return [*_counts(document, rows), *shown, *_spent(document, rows)]


def _of_several(
    document: MatrixDocument, rows: list[RowDocument], metrics: list[str], *, spent: bool = True
) -> list[Column]:
    """The columns for several metrics: the mean and the difference of each; what was spent, where it is wanted."""
    shown = _counts(document, rows)
    for metric in metrics:
        digits = figures.decimals(document, metric)
        means = [figures.number(summary.estimate(row, metric).get("mean"), digits) for row in rows]
        marks = [summary.star(document, row, metric) for row in rows]
        legend = "★ best, ☆ could be best."
        cells = [mark + mean for mark, mean in zip(marks, means, strict=True)]
        shown.append(Column(_header(document, metric), cells, legend=legend))
        shown += [*_within(document, rows, metric), *_differences(document, rows, metric, starred=True)]
    return [*shown, *(_spent(document, rows) if spent else [])]


def _differences(
    document: MatrixDocument, rows: list[RowDocument], metric: str, *, starred: bool = False
) -> list[Column]:
    if document["baseline"] is None:
        return []
    digits, cells = figures.decimals(document, metric), []
    for row in rows:
        found = summary.estimate(row, metric)
        star = ("*" if summary.is_sure(document, found) else " ") if starred else ""
        is_baseline = summary.is_baseline(document, row)
        cells.append("baseline" if is_baseline else figures.signed(found.get("delta"), digits) + star)
    difference = summary.difference_words(document, metric)[0]
    of = f" of {texts.printable(metric)}" if summary.is_typical(document, metric) else ""
    legend = f"Δ{of}: {difference}" + (f", * where {summary.sure_words(document)}." if starred and not of else ".")
    return [Column("Δ" + " " * starred, cells, legend=legend)]


def _within(document: MatrixDocument, rows: list[RowDocument], metric: str) -> list[Column]:
    """The column that shows which rows are within the margin of the best; none without a margin."""
    margin = summary.margin_of(document, metric)
    if margin is None:
        return []
    found = [summary.estimate(row, metric).get("within") for row in rows]
    cells = ["" if one is None or one["shown"] is None else summary.within_words(one) for one in found]
    legend = f"≤{margin:g}: shown to be within {margin:g} of the best by {_name(metric)}, or not; else not shown yet."
    return [Column(f"≤{margin:g}", cells, columns.INTERVAL, legend=legend)]


def _counts(document: MatrixDocument, rows: list[RowDocument]) -> list[Column]:
    shown = [Column(summary.heading(document, "n"), [str(row["n"]) for row in rows], columns.COUNT)]
    if any(row["failed"] for row in rows):
        failed = summary.heading(document, "failed")
        shown.append(Column(failed, [str(row["failed"] or "") for row in rows], columns.COUNT))
    if any(row.get("lost_to_provider") for row in rows):
        shown.append(Column("provider", [str(row.get("lost_to_provider", "")) for row in rows], columns.COUNT))
    return shown


def _spent(document: MatrixDocument, rows: list[RowDocument]) -> list[Column]:
    shown = [
        Column(one.name, one.cells, columns.COST, legend=f"{one.name}: {one.means}")
        for one in summary.costs(document, rows)
    ]
    if any(row["latency_s"]["p50"] is not None for row in rows):
        cells = [texts.duration(row["latency_s"]["p50"]) for row in rows]
        p50 = summary.heading(document, "p50")
        legend = " ".join(filter(None, [f"{p50}: median time of a cell.", summary.loop_lag(document)]))
        shown.append(Column(p50, cells, columns.LATENCY, legend=legend))
    return shown


def _header(document: MatrixDocument, metric: str) -> str:
    """The metric's name, and which way is better."""
    return f"{_name(metric)}{summary.arrow(document, metric)}"  # no space: width is short


def _name(metric: str) -> str:
    name = texts.printable(metric.rsplit(":")[-1])  # the sentence on top has the import path too
    return name if cell_len(name) <= _HEADER_MOST else cut_one(name, _HEADER_MOST, _HEADER_MOST - 4)
