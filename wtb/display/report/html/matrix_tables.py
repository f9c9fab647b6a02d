"""The matrix as static tables, one for each metric: in notebooks, and in a page for those without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.core.classes.frozen import frozen
from wtb.display.matrix import sentences, short_table, summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


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
    """What `matrix_tables.html` shows besides the matrix: tables, what their columns mean, and what they leave out."""

    tables: Sequence[Table]
    legend: str
    left_out: str


def matrix_tables(document: MatrixDocument) -> MatrixTables:
    """Return a table for each metric with the best first; of many rows the best and the baseline."""
    names = [f"{one.name.capitalize()}: {one.means}" for one in summary.costs(document, document["rows"])]
    shown = summary.shortened(document, list(document["rows"]))
    return MatrixTables(
        [_table(document, metric) for metric in summary.tabled(document)] if document["rows"] else [],
        " ".join([short_table.legend(document), *names]) if summary.metric_names(document) else "",
        sentences.left_out(document, len(document["rows"]) - len(shown)),
    )


def _table(document: MatrixDocument, metric: str | None) -> Table:
    rows = summary.shortened(document, summary.ranked(document, metric))
    metrics = [] if metric is None else [metric]
    columns = short_table.columns(document, rows, metrics)
    columns.append(("p95", [texts.duration(row["latency_s"]["p95"]) for row in rows]))
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
