"""The matrix in a terminal: the answer first, then as much of the evidence as the width allows."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich import box
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wtb.core import texts
from wtb.core.frozen import frozen
from wtb.core.texts import cut_one
from wtb.display import failure_causes, figures, recommendation, row_view, sentences, short_table, summary
from wtb.display.tables import abbreviations, cut, labels, least_width, shared_room

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument

GAP = 2
_WHOLE_LEAST = 22  # a whole combination in a narrower column is unreadable
NUMBERED = 6  # columns that the number of a combination has
# Columns of a high rank go first if the width is short; those of rank 0 stay.
NEEDED, COUNT, INTERVAL, SECONDARY, COST, LATENCY = range(6)


@frozen
class Column:
    """A column of text, what ranks it when width is short, and what a reader should know of it."""

    header: str
    cells: Sequence[str]
    rank: int = NEEDED
    is_name: bool = False
    legend: str = ""

    @property
    def width(self) -> int:
        return max(map(cell_len, [self.header, *self.cells]))


@frozen
class Node:
    """A node or factor that distinguishes combinations, and the width that its column can have."""

    name: str
    variants: list[str]
    least: int
    full_width: int

    @classmethod
    def of(cls, document: MatrixDocument, name: str) -> Node:
        variants = list(dict.fromkeys(variant(row, name) for row in document["rows"]))
        full_width = max(map(cell_len, [texts.printable(name), *variants]))
        return cls(name, variants, min(full_width, least_width(variants)), full_width)

    def shortened(self, width: int) -> dict[str, str]:
        """Its variants as they are shown in so many columns."""
        return dict(zip(self.variants, cut(self.variants, width) or self.variants, strict=True))


def variant(row: RowDocument, node: str) -> str:
    return texts.printable(summary.label(row, node))


def fit(
    document: MatrixDocument, rows: Sequence[RowDocument], front: list[Column], columns: list[Column], width: int
) -> tuple[list[Column], bool]:
    """`front`, the combination and those of `columns` that fit, and whether all that are needed do.

    Cost and latency go first, then names are shortened, then other statistics go. With too many nodes
    for a column each, the whole combination is one column, in as few words as the width allows.
    """
    nodes = [Node.of(document, name) for name in summary.shown_nodes(document)]
    full_widths, least = [node.full_width for node in nodes], [node.least for node in nodes]
    for needed, last_to_go in ((full_widths, COST), (least, COUNT)):
        remaining = _drop(columns, width - _total_width(front) - sum(needed) - GAP * len(nodes), last_to_go)
        if nodes and remaining is not None:
            room = width - _total_width(front) - _total_width(remaining) - GAP * (len(nodes) - 1)
            widths = shared_room(full_widths, least, room)
            headers = [texts.printable(node.name) for node in nodes]
            short_headers = [(cut(headers, wide) or headers)[number] for number, wide in enumerate(widths)]
            variants = [node.shortened(wide) for node, wide in zip(nodes, widths, strict=True)]
            legend = "\n".join(abbreviations([dict(zip(headers, short_headers, strict=True)), *variants]))
            named = [
                Column(header, [short[variant(row, node.name)] for row in rows], is_name=True, legend=legend)
                for node, header, short in zip(nodes, short_headers, variants, strict=True)
            ]
            return [*front, *named, *remaining], True
    choices = [{node.name: variant(row, node.name) for node in nodes} for row in rows]
    widest = max((cell_len(summary.combination_name(document, row)) for row in rows), default=0)
    remaining = _drop(columns, width - _total_width(front) - min(widest, _WHOLE_LEAST) - GAP, COUNT)
    fits = remaining is not None
    remaining = [column for column in columns if column.rank == NEEDED] if remaining is None else remaining
    names, legend_lines = labels(
        choices, max(NUMBERED, min(widest, width - _total_width(front) - _total_width(remaining)))
    )
    whole = Column("combination", names, is_name=True, legend="\n".join(legend_lines))
    return [*front, whole, *remaining], fits


def _drop(columns: list[Column], room: int, last_to_go: int) -> list[Column] | None:
    """Drop columns, highest ranks first, until the rest fits; None if one below `last_to_go` would have to go."""
    remaining = list(columns)
    while remaining and _total_width(remaining) - GAP > room:
        # max() returns the first of several. Reversed, so that the last column of equal rank goes first.
        worst = max(reversed(remaining), key=lambda column: column.rank)
        if worst.rank < last_to_go:
            return None
        remaining.remove(worst)
    return remaining


def _total_width(columns: list[Column]) -> int:
    return sum(column.width + GAP for column in columns)


_HEADER_MOST = 14
_VIEWED = 200  # rows of a table that somebody filtered, sorted or grouped
ShownTable = tuple[list["RowDocument"], list[Column], int]


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
        for gate, line in zip(figures.found_in(document), figures.lines(figures.found_in(document)), strict=True):
            console.print(Text(line, style="green" if gate["holds"] else "bold red"))
        _print_tables(console, document, metrics)
        clear = [metric in document["best"] and document["best"][metric]["clear"] for metric in metrics]
        for answer, is_clear in zip_longest(sentences.answers(document), clear):
            console.print(Text(answer, style="green" if is_clear else ""))
        for line in short_table.lines(document):
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
    for rows, table_columns, top in tables:
        console.print()
        console.print(_table(document, rows, table_columns, top))
    table_columns = [column for _, columns_, _ in tables for column in columns_]
    legend = dict.fromkeys(column.legend for column in table_columns if column.legend and not column.is_name)
    names = dict.fromkeys(column.legend for column in table_columns if column.legend and column.is_name)
    missing = every - min((len(rows) for rows, _, _ in tables), default=every)
    for line in (*names, sentences.left_out(document, missing), " ".join(legend)):
        if line:
            console.print(Text(line, style="dim"))
    for line in row_view.words(document):
        console.print(Text(line, style="cyan"))
    if tables:
        console.print()


def _tables(document: MatrixDocument, metrics: list[str], width: int) -> list[ShownTable]:
    """One table for several metrics where those fit in the width, else one for each.

    Each is its rows, its columns, and after how many rows some are left out.
    """
    if len(metrics) > 1 and (together := _together(document, metrics, width)):
        return together
    tables: list[ShownTable] = []
    for metric in summary.tabled(document):
        rows, top = _best_rows(document, metrics, metric, first=not tables)
        marks = [_stop_mark(row) or (summary.mark(document, row, metric) if metric is not None else "") for row in rows]
        front = [Column("", marks)] if any(marks) else []
        table_columns, _ = _fit(document, rows, front, _of_one(document, rows, metric), width)
        tables.append((rows, table_columns, top))
    return tables


def _together(document: MatrixDocument, metrics: list[str], width: int) -> list[ShownTable]:
    """Tables of as many metrics as fit with their means and differences; none where no two do."""
    tables: list[ShownTable] = []
    remaining = metrics
    while remaining:
        rows, top = _best_rows(document, metrics, metrics[0], first=not tables)
        for size in range(len(remaining), 0, -1):
            # Cost and time of a row are the same in every table, so only the first one has them.
            columns_ = _of_several(document, rows, remaining[:size], spent=not tables)
            table_columns, fits = _fit(document, rows, _exploratory(rows), columns_, width)
            if fits:
                break
        # For one metric per table, `_tables` is better: its tables have all statistics of the metric.
        if not fits or (size == 1 and not tables):
            return []
        tables.append((rows, table_columns, top))
        remaining = remaining[size:]
    return tables


def _fit(
    document: MatrixDocument, rows: list[RowDocument], front: list[Column], columns: list[Column], width: int
) -> tuple[list[Column], bool]:
    """Columns as `fit` chooses them, with the numbers of rows if that costs no other column, or for a view."""
    numbered, fits = fit(document, rows, [*_numbers(document, rows), *front], columns, width)
    if "view" in document:
        return numbered, fits
    without, is_fitting = fit(document, rows, front, columns, width)
    is_dearer = len(numbered) - len(_numbers(document, rows)) < len(without)
    return (without, is_fitting) if is_dearer or fits < is_fitting else (numbered, fits)


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


def _table(document: MatrixDocument, rows: list[RowDocument], table_columns: list[Column], top: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for column in table_columns:
        is_left_aligned = column.is_name or not column.header
        # Text instead of str: rich reads `[bold]` in a str as markup, and names may have brackets.
        table.add_column(
            Text(column.header),
            justify="left" if is_left_aligned else "right",
            no_wrap=not column.is_name,
            overflow="fold",
        )
    firsts = {id(document["rows"][number]) for number in row_view.first_of_groups(document)}
    for i, row in enumerate(rows):
        # Only a baseline comes after the first `top` rows. The dots stand for the rows between.
        if i == top and len(rows) < len(row_view.viewed_rows(document, None)):
            table.add_row(Text("⋮"))
        if id(row) in firsts:
            table.add_section()
        is_best = any(summary.star(document, row, metric) == "★" for metric in document["best"])
        style = "bold green" if is_best else "cyan" if summary.is_baseline(document, row) else ""
        table.add_row(*(Text(column.cells[i]) for column in table_columns), style=style)
    return table


def _of_one(document: MatrixDocument, rows: list[RowDocument], metric: str | None) -> list[Column]:
    """The columns for one metric, with all its statistics."""
    if metric is None:
        return [*_counts(document, rows), *_spent(document, rows)]
    digits = figures.decimals(document, metric)
    estimates = [summary.estimate(row, metric) for row in rows]
    metric_columns = [
        Column(_header(document, metric), [figures.number(each.get("mean"), digits) for each in estimates])
    ]
    if any(each.get("ci") for each in estimates):
        halves = [None if each["ci"] is None else (each["ci"][1] - each["ci"][0]) / 2 for each in estimates]
        cells = ["" if half is None else f"±{figures.number(half, digits)}" for half in halves]
        legend = "±: half the width of the mean's 95% interval."
        metric_columns.append(Column("±", cells, INTERVAL, legend=legend))
    metric_columns += _within(document, rows, metric)
    metric_columns += _differences(document, rows, metric)
    if any(each.get("p_adjusted") is not None for each in estimates):
        tested = [each.get("p_adjusted") for each in estimates]
        cells = ["" if p is None else figures.probability(p) for p in tested]
        p = summary.heading(document, "p")
        of = f"{texts.printable(metric)}'s Δ" if summary.is_typical(document, metric) else "Δ"
        legend = f"{p}: of {of}, by {summary.difference_words(document, metric)[1]}, Holm-corrected."
        metric_columns.append(Column(p, cells, SECONDARY, legend=legend))
    return [*_counts(document, rows), *metric_columns, *_spent(document, rows)]


def _of_several(
    document: MatrixDocument, rows: list[RowDocument], metrics: list[str], *, spent: bool = True
) -> list[Column]:
    """The columns for several metrics: the mean and the difference of each; what was spent, where it is wanted."""
    metric_columns = _counts(document, rows)
    for metric in metrics:
        digits = figures.decimals(document, metric)
        means = [figures.number(summary.estimate(row, metric).get("mean"), digits) for row in rows]
        marks = [summary.star(document, row, metric) for row in rows]
        legend = "★ best, ☆ could be best."
        cells = [mark + mean for mark, mean in zip(marks, means, strict=True)]
        metric_columns.append(Column(_header(document, metric), cells, legend=legend))
        metric_columns += [*_within(document, rows, metric), *_differences(document, rows, metric, starred=True)]
    return [*metric_columns, *(_spent(document, rows) if spent else [])]


def _differences(
    document: MatrixDocument, rows: list[RowDocument], metric: str, *, starred: bool = False
) -> list[Column]:
    if document["baseline"] is None:
        return []
    digits, cells = figures.decimals(document, metric), []
    for row in rows:
        estimate = summary.estimate(row, metric)
        # A space instead of a star keeps the digits of a column below each other.
        star = ("*" if summary.is_sure(document, estimate) else " ") if starred else ""
        is_baseline = summary.is_baseline(document, row)
        cells.append("baseline" if is_baseline else figures.signed(estimate.get("delta"), digits) + star)
    difference = summary.difference_words(document, metric)[0]
    of = f" of {texts.printable(metric)}" if summary.is_typical(document, metric) else ""
    legend = f"Δ{of}: {difference}" + (f", * where {summary.sure_words(document)}." if starred and not of else ".")
    return [Column("Δ" + " " * starred, cells, legend=legend)]


def _within(document: MatrixDocument, rows: list[RowDocument], metric: str) -> list[Column]:
    """The column that shows which rows are within the margin of the best; none without a margin."""
    margin = summary.margin_of(document, metric)
    if margin is None:
        return []
    verdicts = [summary.estimate(row, metric).get("within") for row in rows]
    cells = [
        "" if verdict is None or verdict["shown"] is None else summary.within_words(verdict) for verdict in verdicts
    ]
    legend = f"≤{margin:g}: shown to be within {margin:g} of the best by {_name(metric)}, or not; else not shown yet."
    return [Column(f"≤{margin:g}", cells, INTERVAL, legend=legend)]


def _counts(document: MatrixDocument, rows: list[RowDocument]) -> list[Column]:
    count_columns = [Column(summary.heading(document, "n"), [str(row["n"]) for row in rows], COUNT)]
    if any(row["failed"] for row in rows):
        failed = summary.heading(document, "failed")
        count_columns.append(Column(failed, [str(row["failed"] or "") for row in rows], COUNT))
    if any(row.get("lost_to_provider") for row in rows):
        count_columns.append(Column("provider", [str(row.get("lost_to_provider", "")) for row in rows], COUNT))
    return count_columns


def _spent(document: MatrixDocument, rows: list[RowDocument]) -> list[Column]:
    cost_columns = [
        Column(cost.name, cost.cells, COST, legend=f"{cost.name}: {cost.means}")
        for cost in summary.costs(document, rows)
    ]
    if any(row["latency_s"]["p50"] is not None for row in rows):
        cells = [texts.duration(row["latency_s"]["p50"]) for row in rows]
        p50 = summary.heading(document, "p50")
        legend = " ".join(filter(None, [f"{p50}: median time of a cell.", summary.loop_lag(document)]))
        cost_columns.append(Column(p50, cells, LATENCY, legend=legend))
    return cost_columns


def _header(document: MatrixDocument, metric: str) -> str:
    """The metric's name, and which way is better."""
    return f"{_name(metric)}{summary.arrow(document, metric)}"  # no space: width is short


def _name(metric: str) -> str:
    name = texts.printable(metric.rsplit(":")[-1])  # the sentence on top has the import path too
    return name if cell_len(name) <= _HEADER_MOST else cut_one(name, _HEADER_MOST, _HEADER_MOST - 4)


WIDTH = 96


def as_svg(document: MatrixDocument, width: int = WIDTH) -> str:
    """An SVG of the table at `width` columns."""
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True)
    console.print(Text.from_ansi(render(document, width, color=True)))
    # rich's own format fetches fonts from the network; any monospaced font of the reader's will do.
    local = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title=f"wtb matrix {document['sweep']['name']}", code_format=local, unique_id="wtb")
