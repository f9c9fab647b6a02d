"""The figures of combinations as text, in the columns that people paste and read anywhere: no markup, no widths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from wtb.core import texts
from wtb.core.factors import labels_of
from wtb.core.texts import plural, printable
from wtb.display import figures, summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import JudgedMatrixDocument, MatrixDocument, PeopleDocument, PeopleRow, RowDocument
    from wtb.core.documents.shared_types import Interval

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
    shown_columns = [] if brief else [(named("n"), [str(row["n"]) for row in rows])]
    if any(row["failed"] for row in rows):
        shown_columns.append((named("failed"), [f"{row['failed']:,}" for row in rows]))
    if any(row.get("lost_to_provider") for row in rows):
        shown_columns.append(("lost to provider", [f"{row.get('lost_to_provider', 0):,}" for row in rows]))
    for metric in metrics:
        header = f"{metric} {summary.arrow(document, metric)}{'' if brief else ' (95% interval)'}"
        shown_columns.append((header, [_mean(document, row, metric) for row in rows]))
        if (margin := summary.margin_of(document, metric)) is not None:
            shown_columns.append((f"within {margin:g} of the best", [_within(row, metric) for row in rows]))
    if document["baseline"] is not None and metrics:
        estimates = [summary.estimate(row, metrics[0]) for row in rows]
        digits = figures.decimals(document, metrics[0])
        differences = [
            figures.signed(estimate.get("delta"), digits)
            + ("" if brief else interval(estimate.get("delta_ci"), digits))
            for estimate in estimates
        ]
        shown_columns.append((f"Δ {metrics[0]}" if brief else "Δ", differences))
        shown_columns.append((named("p"), [figures.probability(estimate.get("p_adjusted")) for estimate in estimates]))
    shown_columns += [(cost.name, cost.cells) for cost in summary.costs(document, rows)]
    return [*shown_columns, (named("p50"), [texts.duration(row["latency_s"]["p50"]) for row in rows])]


def _mean(document: MatrixDocument, row: RowDocument, metric: str) -> str:
    estimate, digits = summary.estimate(row, metric), figures.decimals(document, metric)
    return figures.number(estimate.get("mean"), digits) + interval(estimate.get("ci"), digits)


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
    """Explain the columns, for each kind of metrics that there is."""
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


FEW = "* fewer than 100 labels: the interval may be too short"


def found_in(document: MatrixDocument) -> list[PeopleDocument]:
    """Return the estimated human ratings of each metric that people have labelled; empty without labels."""
    return cast("JudgedMatrixDocument", document).get("people", [])


def lines(document: MatrixDocument) -> list[str]:
    """Return a line for each metric that people have labelled, and for each row with labels; empty without labels."""
    text_lines = []
    for people in found_in(document):
        text_lines.append(
            f"{printable(people['metric'])} above is the judge's; estimated human labels, {basis(people)}:"
        )
        text_lines += [_row(row) for row in people["rows"]]
        text_lines += notes(people)
    return text_lines


def notes(people: PeopleDocument) -> list[str]:
    """Return what readers have to know of the intervals: that there are none, or that they rest on few labels."""
    why_not = people.get("because")
    few = [FEW] if any(row["few_labels"] for row in people["rows"]) else []
    return [*([f"No interval: {why_not}."] if why_not else []), *few]


def basis(people: PeopleDocument) -> str:
    """Return in words the labels that the figures rest on."""
    by = f"{plural(people['labels'], 'label')} of {plural(people['raters'], 'rater')}"
    return f"by {by} and its scores of all cases (PPI++)"


def _row(row: PeopleRow) -> str:
    named = ", ".join(f"{key}={label}" for key, label in labels_of(row["combination"]).items()) or "the row"
    mark = "*" if row["few_labels"] else ""
    more = "" if row["delta"] is None else f", a difference of {_figure(row['delta'], row['delta_ci'])}{mark}"
    return f"  {printable(named)}: {_figure(row['mean'], row['ci'])}{mark}{more}"


def _figure(mean: float | None, interval: Interval | None) -> str:
    if mean is None:
        return "unknown"
    return f"{mean:.3f} " + ("(no interval)" if interval is None else f"({interval[0]:.3f} to {interval[1]:.3f})")
