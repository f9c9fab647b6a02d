"""A pivot table as text for a terminal, as Markdown and as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from wtb.core import texts
from wtb.core.frozen import frozen
from wtb.display import csv, figures, markdown, recommendation, row_view, summary
from wtb.display.tables import abbreviations, cut, least_width, wrapped

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, PivotCell, PivotDocument

_GAP = 2
_WITHOUT = "without"  # the level of combinations that do not have a factor
_LINE_NAME_MOST = 24
_CSV = ("metric", "mean", "ci_low", "ci_high", "combinations", "left_out")


Words = tuple[str, str, str]  # a cell with its interval, with half the width of that, and without


@frozen
class _Texts:
    """A pivot table as texts."""

    lines: list[str]
    columns: list[str]
    cells: list[list[Words]]


def render(document: MatrixDocument, width: int = 80) -> str:
    """The pivot table of a matrix as text.

    Args:
        document: The matrix, with a view that has a pivot table.
        width: Columns of the terminal. If the table is wider, intervals go first, then names are cut, then columns
            follow below each other.

    Returns:
        Lines, with what is averaged below the table.
    """
    pivot = document["view"]["pivot"]
    sweep, cell_texts = document["sweep"], _texts(document, pivot)
    parts = [f"{sweep['name']} ({sweep['status']})", ""]
    if not cell_texts.lines:
        parts += ["No combination is left by the filters."]
    else:
        table, legend = _tables(pivot, cell_texts, width)
        parts += [*table, *(line for text in legend for line in wrapped(text, width))]
    parts += ["", *(line for note in notes(document) for line in wrapped(note, width))]
    visible, more = recommendation.warnings(document, all_of_them=False)
    for warning in [*(f"Warning: {warning}" for warning in visible), more]:
        parts += wrapped(warning, width) if warning else []
    return "\n".join(texts.printable(line).rstrip() for line in parts) + "\n"


def as_markdown(document: MatrixDocument) -> str:
    """The pivot table of a matrix as Markdown."""
    pivot = document["view"]["pivot"]
    sweep, cell_texts = document["sweep"], _texts(document, pivot)
    lines = [
        [markdown.escape(name), *(each[0] for each in cells)]
        for name, cells in zip(cell_texts.lines, cell_texts.cells, strict=True)
    ]
    table = markdown.table([_corner(pivot), *cell_texts.columns], lines, len(cell_texts.columns)) if lines else ""
    title = f"### {markdown.escape(sweep['name'])} ({markdown.escape(sweep['status'])})"
    return markdown.joined([title, table, markdown.bullets(notes(document))])


def as_csv(document: MatrixDocument) -> str:
    """The pivot table of a matrix as CSV: a line for each of its cells, with figures in full precision."""
    pivot = document["view"]["pivot"]
    lines: list[list[Any]] = [[*pivot["factors"], *_CSV]]
    for level, cells in zip(pivot["lines"], pivot["cells"], strict=True):
        for other, cell in zip(pivot["columns"], cells, strict=True):
            # With one factor the only column has the level None, which belongs to no factor.
            levels = [level, other][: len(pivot["factors"])]
            low, high = cell["ci"] or (None, None)
            values = [pivot["metric"], cell["mean"], low, high, len(cell["rows"]), len(cell["left_out"])]
            lines.append([*levels, *values])
    return csv.written(lines)


def notes(document: MatrixDocument) -> list[str]:
    """Return sentences on what the cells of a pivot table average and leave out."""
    pivot = document["view"]["pivot"]
    cells = [cell for line in pivot["cells"] for cell in line]
    counts = sorted({len(cell["rows"]) for cell in cells if cell["rows"]})
    per_cell = "" if not counts else f"{counts[0]}" if len(counts) == 1 else "as many as stand behind the cell"
    metric = pivot["metric"]
    what = f"{metric} {summary.arrow(document, metric)}" if metric in summary.metric_names(document) else metric
    lines = []
    if counts:
        by = " and ".join(pivot["factors"])
        lines.append(f"{what} by {by}: mean over the combinations that share the levels, {per_cell} in each cell.")
    if any(cell["ci"] for cell in cells):
        lines.append("Intervals: at least 95%, as means of the combinations' intervals. No test is made here.")
    if not pivot["balanced"]:
        lines.append(
            "Cells average different levels of the other factors, so differences between cells may be due to those."
        )
    if left_out := sum(len(cell["left_out"]) for cell in cells):
        lines.append(
            f"{texts.plural(left_out, 'combination')} left out: stopped, added after results were seen, or without "
            "a figure."
        )
    return [*lines, *row_view.words(document)]


def _texts(document: MatrixDocument, pivot: PivotDocument) -> _Texts:
    """Write all parts of a pivot table."""
    cells = [cell for line in pivot["cells"] for cell in line]
    write = _number_writer(document, pivot["metric"], cells)
    counts = {len(cell["rows"]) for cell in cells if cell["rows"]}
    name = pivot["metric"].rsplit(":")[-1]
    return _Texts(
        [_level(level) for level in pivot["lines"]],
        # The only column of one factor has no level, so the metric is its name.
        [_level(level) for level in pivot["columns"]] if len(pivot["factors"]) > 1 else [texts.printable(name)],
        [[_words(cell, write, len(counts) > 1) for cell in line] for line in pivot["cells"]],
    )


def _level(level: str | None) -> str:
    return _WITHOUT if level is None else texts.printable(level)


def _corner(pivot: PivotDocument) -> str:
    return texts.printable(" \\ ".join(pivot["factors"]))


def _number_writer(document: MatrixDocument, metric: str, cells: Sequence[PivotCell]) -> Callable[[float | None], str]:
    """Return the function that writes a figure as other tables do."""
    if metric in summary.metric_names(document):
        digits = figures.decimals(document, metric)
        return lambda figure: figures.number(figure, digits)
    if metric == "cost":
        largest = max((cell["mean"] or 0.0 for cell in cells), default=0.0)
        return lambda figure: texts.money(figure, largest)
    return texts.duration


def _words(cell: PivotCell, write: Callable[[float | None], str], is_counted: bool) -> Words:
    """Write a cell with its interval, with half of that, and without; with how many combinations it averages."""
    if cell["mean"] is None:
        # No combination has these levels, unless some have and all of them are left out.
        word = "left out" if cell["left_out"] else texts.MISSING
        return word, word, word
    mean = write(cell["mean"])
    count = f" ({len(cell['rows'])})" if is_counted else ""
    if cell["ci"] is None:
        return mean + count, mean + count, mean
    low, high = cell["ci"]
    return f"{mean} [{write(low)}, {write(high)}]{count}", f"{mean} ±{write((high - low) / 2)}{count}", mean


def _tables(pivot: PivotDocument, cell_texts: _Texts, width: int) -> tuple[list[str], list[str]]:
    """Lay the table out in the width. Returns its lines, and those of a legend of what was cut."""
    corner = _corner(pivot)
    full_width = max(map(cell_len, [corner, *cell_texts.lines]))
    least = max(least_width(cell_texts.lines), min(full_width, _LINE_NAME_MOST))
    # Names stay whole as long as any form of the cells fits beside them.
    for form in range(3):
        widths = _widths(cell_texts, form, cell_texts.columns)
        if full_width + sum(widths) + _GAP * len(widths) <= width:
            return _lines(corner, cell_texts.lines, cell_texts.columns, cell_texts, form, widths), []
    headers = cut(cell_texts.columns, least_width(cell_texts.columns)) or cell_texts.columns
    # Form 0 has both ends of the intervals, which are the first to go when names have to be cut.
    for form in range(1, 3):
        widths = _widths(cell_texts, form, headers)
        wide = min(full_width, width - sum(widths) - _GAP * len(widths))
        if wide >= least:
            break
    # If not even bare means fit beside the shortest names, the columns are split into several tables.
    wide = max(wide, least)
    names = cut(cell_texts.lines, wide) or cell_texts.lines
    table_lines: list[str] = []
    for places in _fitting(widths, width - wide):
        part = _Texts(names, [], [[cells[place] for place in places] for cells in cell_texts.cells])
        part_headers = [headers[place] for place in places]
        head = texts.cut(corner, wide)
        table_lines += ["", *_lines(head, names, part_headers, part, form, [widths[place] for place in places])]
    legend = abbreviations(
        [dict(zip(cell_texts.lines, names, strict=True)), dict(zip(cell_texts.columns, headers, strict=True))]
    )
    # Each part begins with a blank line, which the first one does not need.
    return table_lines[1:], legend


def _widths(cell_texts: _Texts, form: int, headers: Sequence[str]) -> list[int]:
    return [
        max(cell_len(header), *(cell_len(cells[place][form]) for cells in cell_texts.cells))
        for place, header in enumerate(headers)
    ]


def _fitting(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return columns in as many tables as the width needs; each has one column at least."""
    tables: list[list[int]] = [[]]
    room_left = room
    for place, wide in enumerate(widths):
        if tables[-1] and wide + _GAP > room_left:
            tables.append([])
            room_left = room
        tables[-1].append(place)
        room_left -= wide + _GAP
    return tables


def _lines(
    corner: str, names: Sequence[str], headers: Sequence[str], cell_texts: _Texts, form: int, widths: Sequence[int]
) -> list[str]:
    """Return the lines of a table, with its head and a rule."""
    wide = max(map(cell_len, [corner, *names]))
    gap = " " * _GAP

    def line(name: str, cells: Sequence[str]) -> str:
        padded = [" " * (each - cell_len(cell)) + cell for cell, each in zip(cells, widths, strict=True)]
        return gap.join([name + " " * (wide - cell_len(name)), *padded])

    rule = "─" * (wide + sum(widths) + _GAP * len(widths))
    rows = [line(name, [cell[form] for cell in cells]) for name, cells in zip(names, cell_texts.cells, strict=True)]
    return [line(corner, headers), rule, *rows]
