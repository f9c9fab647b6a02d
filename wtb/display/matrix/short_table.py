"""The figures of combinations as text, in the columns that people paste and read anywhere: no markup, no widths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from wtb.core import texts
from wtb.display.matrix import figures, summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


Column = tuple[str, list[str]]  # its header, and a cell for each row


def columns(
    document: MatrixDocument, rows: Sequence[RowDocument], metrics: Sequence[str], *, brief: bool = False
) -> list[Column]:
    """The columns after those of the nodes.

    Args:
        document: The matrix.
        rows: The rows that are shown.
        metrics: The metrics that have a column each; differences and their p are of the first.
        brief: Leave out how many cells there are, and the intervals of differences.

    Returns:
        Counts, means with their intervals, the difference from the baseline, costs and the median time.
    """
    named = partial(summary.heading, document)
    shown = [] if brief else [(named("n"), [str(row["n"]) for row in rows])]
    if any(row["failed"] for row in rows):
        shown.append((named("failed"), [f"{row['failed']:,}" for row in rows]))
    if any(row.get("lost_to_provider") for row in rows):
        shown.append(("lost to provider", [f"{row.get('lost_to_provider', 0):,}" for row in rows]))
    for metric in metrics:
        header = f"{metric} {summary.arrow(document, metric)}{'' if brief else ' (95% interval)'}"
        shown.append((header, [_mean(document, row, metric) for row in rows]))
        if (margin := summary.margin_of(document, metric)) is not None:
            shown.append((f"within {margin:g} of the best", [_within(row, metric) for row in rows]))
    if document["baseline"] is not None and metrics:
        estimates = [summary.estimate(row, metrics[0]) for row in rows]
        digits = figures.decimals(document, metrics[0])
        differences = [
            figures.signed(one.get("delta"), digits) + ("" if brief else interval(one.get("delta_ci"), digits))
            for one in estimates
        ]
        shown.append((f"Δ {metrics[0]}" if brief else "Δ", differences))
        shown.append((named("p"), [figures.probability(one.get("p_adjusted")) for one in estimates]))
    shown += [(one.name, one.cells) for one in summary.costs(document, rows)]
    return [*shown, (named("p50"), [texts.duration(row["latency_s"]["p50"]) for row in rows])]


def _mean(document: MatrixDocument, row: RowDocument, metric: str) -> str:
    found, digits = summary.estimate(row, metric), figures.decimals(document, metric)
    return figures.number(found.get("mean"), digits) + interval(found.get("ci"), digits)


def _within(row: RowDocument, metric: str) -> str:
    within = summary.estimate(row, metric).get("within")
    return texts.MISSING if within is None else summary.within_words(within)


def interval(ci: Sequence[float] | None, digits: int) -> str:
    """` [0.12, 0.34]`; nothing where there is none."""
    return "" if ci is None else f" [{figures.number(ci[0], digits)}, {figures.number(ci[1], digits)}]"


def variants(document: MatrixDocument, rows: Sequence[RowDocument]) -> list[Column]:
    """A column for each node and factor that distinguishes combinations."""
    return [(key, [summary.label(row, key) for row in rows]) for key in summary.shown_nodes(document)]


def marks(document: MatrixDocument, row: RowDocument, metric: str | None) -> tuple[str, str]:
    """`★ best` and `baseline`, each empty where it is not."""
    mark = summary.mark(document, row, metric) if metric is not None else ""
    return mark, "baseline" if summary.is_baseline(document, row) else ""


def legend(document: MatrixDocument) -> str:
    """What the columns mean, of each kind of metrics that there is."""
    text = "95% intervals of the mean over cases. ↑, ↓: which way is better."
    if document["baseline"] is None:
        return text
    kinds: dict[tuple[str, str], list[str]] = {}
    for metric in summary.metric_names(document):
        kinds.setdefault(summary.difference_words(document, metric), []).append(texts.printable(metric))
    for (difference, test), metrics in kinds.items():
        of = f" of {', '.join(metrics)}" if len(kinds) > 1 else ""
        text += f" Δ{of}: {difference} over the cases that both have. p: of Δ, by {test}, Holm-corrected."
    lag = summary.loop_lag(document)
    return f"{text} {lag}" if lag else text
