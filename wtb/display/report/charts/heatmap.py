"""The matrix as a heat map: a row for each combination, a column for each metric, that sorts and filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures, summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import signed, span

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, MetricEstimate, RowDocument
    from wtb.core.documents.report import EvidenceDocument


FEW = 4  # rows for which a filter is of no use


@frozen
class Score:
    """A row's mean by a metric.

    Attributes:
        shade: How good it is within its column, in per cent.
        mark: Whether it is or could be the best.
        title: What pointing at it shows.
        wide: Characters of the longest difference of the column.
    """

    mean: float | None
    shown: str
    shade: float
    mark: str
    on_front: bool
    title: str
    difference: str
    wide: int


@frozen
class Heatmap:
    """The matrix.

    Attributes:
        scores: Of each row, in the order of `metrics`.
        failed: Whether any cell failed.
        heading: Of the columns that always have the same key.
        choices: Node -> variants that rows have, to filter by.
    """

    metrics: Sequence[str]
    rows: Sequence[layout.Numbered]
    scores: Sequence[Sequence[Score]]
    costs: Sequence[summary.Money]
    failed: bool
    lost_to_provider: bool
    heading: Mapping[str, str]
    is_filtered: bool
    choices: Mapping[str, Sequence[str]]
    legend: Sequence[str]


def heatmap(document: EvidenceDocument) -> Heatmap | None:
    """Figures with their differences from the baseline; darker and a longer bar is better, within a column."""
    matrix = document["matrix"]
    if not matrix["rows"]:
        return None
    metrics = layout.metrics(matrix)
    rows = layout.ranked(matrix, metrics[0] if metrics else None)
    columns = [_column(matrix, rows, metric) for metric in metrics]
    costs = summary.costs(matrix, [row for _, row in rows])
    return Heatmap(
        metrics=metrics,
        rows=rows,
        scores=[[column[place] for column in columns] for place in range(len(rows))],
        costs=costs,
        failed=any(row["failed"] for _, row in rows),
        lost_to_provider=any(row.get("lost_to_provider") for _, row in rows),
        heading={name: summary.heading(matrix, name) for name in ("failed", "p50", "n")},
        is_filtered=len(rows) >= FEW,
        choices={
            node: list(dict.fromkeys(summary.label(row, node) for _, row in rows))
            for node in summary.shown_nodes(matrix)
        },
        legend=_legend(matrix, metrics, costs),
    )


def _column(matrix: MatrixDocument, rows: list[layout.Numbered], metric: str) -> list[Score]:
    """The scores of the rows by a metric; their differences have the same room, so that means line up."""
    digits = figures.decimals(matrix, metric)
    estimates = [summary.estimate(row, metric) for _, row in rows]
    means = [one["mean"] for one in estimates if one["mean"] is not None]
    differences = [_difference(matrix, row, metric, digits) for _, row in rows]
    front, wide = layout.on_front(matrix, metric), max(map(len, differences))
    return [
        Score(
            mean=one["mean"],
            shown=figures.number(one["mean"], digits),
            shade=_shade(one["mean"], means, summary.better(matrix, metric)),
            mark=summary.star(matrix, row, metric),
            on_front=number in front,
            title=_title(one, digits),
            difference=difference,
            wide=wide,
        )
        for (number, row), one, difference in zip(rows, estimates, differences, strict=True)
    ]


def _shade(mean: float | None, means: list[float], better: str) -> float:
    """How good a mean is among others, in per cent."""
    if mean is None or min(means) == max(means):
        return 0.0
    goodness = (mean - min(means)) / (max(means) - min(means))
    return 100 * (1.0 - goodness if better == "lower" else goodness)


def _title(one: MetricEstimate, digits: int) -> str:
    parts = [] if one["ci"] is None else [f"95% interval {span(one['ci'], digits)}"]
    if one["delta_ci"] is not None:
        low, high = (signed(end, digits) for end in one["delta_ci"])
        parts.append(f"of the difference {low} to {high}")
    return ", ".join(parts)


def _difference(matrix: MatrixDocument, row: RowDocument, metric: str, digits: int) -> str:
    found = summary.estimate(row, metric)
    if found.get("delta") is None or summary.is_baseline(matrix, row):
        return ""
    return signed(found["delta"], digits) + ("*" if summary.is_sure(matrix, found) else "")


def _legend(matrix: MatrixDocument, metrics: list[str], costs: list[summary.Money]) -> list[str]:
    legend = []
    if metrics and len(matrix["rows"]) > 1:
        legend.append("Darker, with a longer bar: better within the column. ★ best, ☆ could be best.")
        if any(layout.on_front(matrix, metric) for metric in metrics):
            what = "that metric, cost and time" if costs else "both that metric and time"
            legend.append(f"◆ no other combination is better in {what} at once.")
        if matrix["baseline"] is not None:
            legend.append(f"In small: the difference from the baseline, * where {summary.sure_words(matrix)}.")
    p50, n = (summary.heading(matrix, column) for column in ("p50", "n"))
    legend += [f"{one.name}: {one.means}" for one in costs]
    legend.append(f"{p50}: {'' if p50 == 'median time' else 'median time '}of a cell.")
    return [*legend, f"{n}: {'' if n == 'cells' else 'cells '}with an outcome."]
