"""The matrix as static tables, one for each metric: in notebooks, and in a page for those without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.frozen import frozen
from wtb.display import sentences, short_table, summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument

METRICS = 12
MANY, TOP = 300, 200  # of more combinations than MANY the TOP are shown, and the baseline

Numbered = tuple[int, "RowDocument"]


def metrics(matrix: MatrixDocument) -> list[str]:
    """Return the metrics that are shown: the first, and the one that decides."""
    names, primary = list(matrix["metrics"]), matrix["primary"]
    shown_names = names[:METRICS]
    return shown_names if primary is None or primary in shown_names else [*shown_names[:-1], primary]


def ranked(matrix: MatrixDocument, metric: str | None, limit: int | None = None) -> list[Numbered]:
    """(number, row) of the rows that are shown, best first; those beyond `limit` are left out, but for the baseline."""
    numbers = {id(row): number for number, row in enumerate(matrix["rows"])}
    every = summary.ranked(matrix, metric)
    rows = summary.shortened(matrix, every, MANY, TOP)
    if limit is not None:
        rows = summary.shortened(matrix, rows, limit, limit)
    return [(numbers[id(row)], row) for row in rows]


def concerned(matrix: MatrixDocument, numbers: Sequence[int]) -> str:
    """Which combinations: all, those of one variant, or by name."""
    rows = matrix["rows"]
    if len(numbers) == len(rows):
        return "all combinations" if len(rows) > 1 else "the only combination"
    for node in summary.shown_nodes(matrix):
        variants = {summary.label(rows[number], node) for number in numbers}
        if len(variants) == 1:
            (variant,) = variants
            if sum(summary.label(row, node) == variant for row in rows) == len(numbers):
                return f"every combination with {node}={variant}"
    names = [summary.combination_name(matrix, rows[number]) for number in numbers[:3]]
    more = f" and {len(numbers) - 3} more combinations" if len(numbers) > 3 else ""
    return "; ".join(names) + more


@frozen
class ShownRow:
    """A row of a table. plot: where its mean and the ends of its interval lie, in per cent; empty without a mean."""

    marks: str
    is_best: bool
    is_baseline: bool
    plot: Sequence[float]


@frozen
class Table:
    """A metric's table: headers with the cells below them, of the nodes and of the figures."""

    title: str
    nodes: Sequence[tuple[str, Sequence[str]]]
    columns: Sequence[tuple[str, Sequence[str]]]
    rows: Sequence[ShownRow]


@frozen
class MatrixTables:
    """Data of `matrix_tables.html` besides the matrix: tables, what their columns mean, and what they leave out."""

    tables: Sequence[Table]
    legend: str
    left_out: str


def matrix_tables(document: MatrixDocument) -> MatrixTables:
    """Return a table for each metric with the best first; of many rows the best and the baseline."""
    names = [f"{cost.name.capitalize()}: {cost.means}" for cost in summary.costs(document, document["rows"])]
    rows = summary.shortened(document, list(document["rows"]))
    return MatrixTables(
        [_table(document, metric) for metric in summary.tabled(document)] if document["rows"] else [],
        " ".join([short_table.legend(document), *names]) if summary.metric_names(document) else "",
        sentences.left_out(document, len(document["rows"]) - len(rows)),
    )


def _table(document: MatrixDocument, metric: str | None) -> Table:
    rows = summary.shortened(document, summary.ranked(document, metric))
    metrics = [] if metric is None else [metric]
    columns = short_table.columns(document, rows, metrics)
    columns.append(("p95", [texts.duration(row["latency_s"]["p95"]) for row in rows]))
    # Over all rows, so that the scale of the plots does not depend on which rows are shown.
    ends = [end for row in document["rows"] for end in _ends(row, metric)]
    low, wide = (min(ends), (max(ends) - min(ends)) or 1.0) if ends else (0.0, 1.0)
    return Table(
        title=summary.table_title(document, metric),
        nodes=short_table.variants(document, rows),
        columns=columns,
        rows=[
            ShownRow(
                marks=", ".join(filter(None, short_table.marks(document, row, metric))),
                is_best=metric is not None and summary.is_best(document, row, metric),
                is_baseline=summary.is_baseline(document, row),
                plot=[100 * (end - low) / wide for end in _ends(row, metric)],
            )
            for row in rows
        ],
    )


def _ends(row: RowDocument, metric: str | None) -> list[float]:
    """The mean of a row and both ends of its interval; nothing without a mean."""
    estimate = summary.NOT_EVALUATED if metric is None else summary.estimate(row, metric)
    if estimate["mean"] is None:
        return []
    return [estimate["mean"], *(estimate["ci"] or (estimate["mean"], estimate["mean"]))]
