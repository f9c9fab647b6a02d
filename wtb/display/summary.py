"""The content of a matrix that every format shares: rows, marks, costs and headings.

The document is version 1 of the JSON contract, with two optional keys: `metrics`, which gives each
metric's direction, and `warnings`, a list of sentences to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from wtb.core.documents.matrix import is_ranked
from wtb.core.factors import label_columns, labels_of
from wtb.core.texts import LAG_SHOWN_S, duration, listed_names, money, plural, printable

if TYPE_CHECKING:
    from wtb.core.documents.comparison import ComparedCell, ComparedRow, ComparisonDocument
    from wtb.core.documents.matrix import MatrixDocument, MetricEstimate, RowDocument, StoppedDocument, WithinDocument
    from wtb.core.documents.shared_types import Better


ARROWS = {"higher": "↑", "lower": "↓"}
SIGNIFICANT = 0.05
_LATE_NAMED = 3  # variants whose event loop lags the most
MANY, TOP, FEW = 30, 20, 5  # of more rows than MANY the TOP are shown; FEW where there are several tables
LOWER_IS_BETTER = {"latency", "cost", "tokens", "node_runs"}
# Headings for columns whose usual name is that of a node or a metric of the sweep; see `heading`.
_OTHERWISE = {
    "n": "cells",
    "failed": "cells failed",
    "cost": "USD",
    "p": "p of Δ",
    "p50": "median time",
    "lost": "USD lost",
    "innocent": "USD innocent",
    "per success": "USD per success",
}
NOT_EVALUATED: MetricEstimate = {
    "n": 0,
    "n_pairs": 0,
    "mean": None,
    "ci": None,
    "delta": None,
    "delta_ci": None,
    "p": None,
    "p_adjusted": None,
    "effect": None,
    "detectable": None,
    "detectable_fall": None,
    "detectable_rise": None,
    "ranks": None,
    "common_mean": None,
    "bounds": None,
}


def metric_names(document: MatrixDocument) -> list[str]:
    """The metrics in the order of the rows."""
    return list(dict.fromkeys(name for row in document["rows"] for name in row["metrics"]))


def tabled(document: MatrixDocument) -> list[str | None]:
    """Return what gets a table: each metric, or None once if nothing was evaluated."""
    return [*metric_names(document)] or [None]


def largest_cost(document: MatrixDocument, rows: Sequence[RowDocument]) -> float:
    """The highest cost of a cell among the rows; nothing where `cost` is a metric, which says it already."""
    return 0.0 if "cost" in metric_names(document) else max((row["cost_usd"] or 0.0 for row in rows), default=0.0)


def table_title(document: MatrixDocument, metric: str | None) -> str:
    """`By ndcg ↑, higher is better`."""
    if metric is None:
        return "Combinations"
    return f"By {printable(metric)} {arrow(document, metric)}, {better(document, metric)} is better"


MoneyKey = Literal["cost_usd", "cost_failed_usd", "cost_per_success_usd", "cost_innocent_usd"]


class Money(NamedTuple):
    """A column about money: its heading, the key of its figures, these as text, and what they mean."""

    name: str
    key: MoneyKey
    cells: list[str]
    means: str


def costs(document: MatrixDocument, rows: Sequence[RowDocument]) -> list[Money]:
    """The columns about money, of which there are those that have any."""
    kinds: list[tuple[str, MoneyKey, str]] = []
    # If costs are unknown the column stays even if all recorded ones are 0: without it the sweep would look free.
    is_paid = largest_cost(document, rows) or (document["cost"].get("unknown") and "cost" not in metric_names(document))
    kinds += [("cost", "cost_usd", "of one cell, as if alone.")] if is_paid else []
    if any(row.get("cost_failed_usd") for row in rows):
        kinds += [
            ("lost", "cost_failed_usd", "on all failed attempts and cells, as if alone."),
            ("per success", "cost_per_success_usd", "cost of a cell that succeeded, with its share of what was lost."),
        ]
    if any(row.get("cost_innocent_usd") for row in rows):
        kinds += [("innocent", "cost_innocent_usd", "on attempts that ended with the process of another one.")]
    columns = []
    for name, key, means in kinds:
        largest = max((row.get(key) or 0.0 for row in rows), default=0.0)
        columns.append(Money(heading(document, name), key, [money(row.get(key), largest) for row in rows], means))
    return columns


def loop_lag(document: MatrixDocument) -> str:
    """Return how much of the latency is lag of the event loop, as a sentence; empty if it is little everywhere."""
    late = [
        (lag_s, printable(f"{node}={variant}"))
        for node, runs in document["node_runs"]["by_node"].items()
        for variant, lag_s in runs.get("lag_s", {}).items()
        if lag_s is not None and lag_s >= LAG_SHOWN_S
    ]
    if not late:
        return ""
    named = [f"{name} {duration(lag_s)}" for lag_s, name in sorted(late, reverse=True)[:_LATE_NAMED]]
    more = len(late) - len(named)
    listed = listed_names([*named, f"{more:,} more"] if more else named)
    return f"Loop lag on average, which is part of the latency: {listed}."


def is_exploratory(document: MatrixDocument, metric: str) -> bool:
    """Return whether another metric decides."""
    return document["primary"] not in (None, metric)


def heading(document: MatrixDocument, column: str) -> str:
    """The name of a column of figures; another one where a node or a metric has that name."""
    names = [*shown_nodes(document), *(name.rsplit(":")[-1] for name in metric_names(document))]
    return _OTHERWISE[column] if column in names else column


def better(document: MatrixDocument, metric: str) -> Better:
    """`higher` or `lower`."""
    return document["metrics"][metric]["better"]


def arrow(document: MatrixDocument, metric: str) -> str:
    """`↑` where higher values are better, `↓` where lower ones are."""
    return ARROWS[better(document, metric)]


def is_typical(document: MatrixDocument, metric: str) -> bool:
    """Return whether combinations are compared by the median of their differences, else by the mean."""
    return document["metrics"][metric]["compare"] == "median"


def difference_words(document: MatrixDocument, metric: str | None) -> tuple[str, str]:
    """Explain in a legend what the difference of a metric is, and from which test its p comes."""
    if metric is not None and is_typical(document, metric):
        return "the typical difference from the baseline (Hodges-Lehmann)", "Wilcoxon's signed ranks"
    return "difference from the baseline", "paired sign flips"


def shown_nodes(document: MatrixDocument | ComparisonDocument) -> list[str]:
    """The nodes and factors that tell the combinations apart: all varied ones where there is but one combination."""
    labels = [labels_of(row["combination"]) for row in document["rows"]]
    every = label_columns([row["combination"] for row in document["rows"]])
    return [key for key in every if len({row_labels.get(key) for row_labels in labels}) > 1] or every


def label(row: RowDocument | ComparedRow | ComparedCell, key: str, missing: str = "") -> str:
    """Return the choice of a row at a node or a factor, or `missing` if it has no such factor."""
    return labels_of(row["combination"]).get(key, missing)


def combination_name(
    document: MatrixDocument | ComparisonDocument, row: RowDocument | ComparedRow | ComparedCell
) -> str:
    """`chunk=sentence answer.model=mini`, of the nodes and factors that tell combinations apart."""
    labels = labels_of(row["combination"])
    named = (f"{key}={labels[key]}" for key in shown_nodes(document) if key in labels)
    return printable(" ".join(named)) or "the workflow as it is"


def estimate(row: RowDocument, metric: str) -> MetricEstimate:
    """A row's statistics under one metric; without figures where it was not evaluated."""
    return row["metrics"].get(metric, NOT_EVALUATED)


def is_baseline(document: MatrixDocument, row: RowDocument) -> bool:
    return document["baseline"] is not None and row["combination"] == document["baseline"]


def is_best(document: MatrixDocument, row: RowDocument, metric: str) -> bool:
    """Return whether it could be the best: one row where that is clear, else each that could."""
    best = document["best"].get(metric)
    return best is not None and row["combination"] in best["candidates"]


def is_named_best(document: MatrixDocument, row: RowDocument, metric: str) -> bool:
    best = document["best"].get(metric)
    return best is not None and row["combination"] == best["combination"]


def mark(document: MatrixDocument, row: RowDocument, metric: str) -> str:
    """`★ best`; where it is not clear `☆ leads`, and `☆` for others that could be best; nothing without rivals.

    A row that was added after results were seen is `exploratory`, whatever its figures.
    """
    if row.get("exploratory"):
        return "exploratory"
    if row.get("stopped"):
        return stopped_words(row["stopped"])
    if not is_best(document, row, metric):
        return ""
    best = document["best"][metric]
    if best["clear"]:
        return "★ best"
    if best["rival"] is None:
        return ""
    # Of rows that are alike none leads.
    return "☆ leads" if is_named_best(document, row, metric) and (best["lead"] or 0) > 0 else "☆"


def stopped_words(stopped: StoppedDocument) -> str:
    """Return `stopped by ana after 9 cases`."""
    return printable(f"stopped by {stopped['by']} after {plural(stopped['cases'], 'case')}")


def star(document: MatrixDocument, row: RowDocument, metric: str) -> str:
    """`★`, `☆` or nothing."""
    first = mark(document, row, metric)[:1]
    return first if first in ("★", "☆") else ""


def is_sure(document: MatrixDocument, metric_estimate: MetricEstimate) -> bool:
    """True if a difference from the baseline is more than chance: by its test, or before the end by its interval."""
    # Tests are made at the end only. Before it, p would not hold for repeated looks, and the interval does.
    p, ci = metric_estimate.get("p_adjusted"), metric_estimate.get("delta_ci")
    if p is not None:
        return bool(p < SIGNIFICANT)
    return is_running(document) and ci is not None and not ci[0] <= 0 <= ci[1]


def margin_of(document: MatrixDocument, metric: str) -> float | None:
    """The margin of a metric; None without one."""
    verdict = next((within for row in document["rows"] if (within := estimate(row, metric).get("within"))), None)
    return None if verdict is None else verdict["margin"]


def within_words(within: WithinDocument) -> str:
    """Return whether a row is within the margin of the best: `yes`, `no` or `not shown`."""
    return "not shown" if within["shown"] is None else "yes" if within["shown"] else "no"


def is_running(document: MatrixDocument) -> bool:
    """Return whether figures are those of a look before the end, and hold however often one looks."""
    return document["figures"] == "anytime"


def sure_words(document: MatrixDocument) -> str:
    """Return the condition for a difference to count as more than chance, for legends."""
    return "its interval, which holds at any time, has no 0" if is_running(document) else "p < 0.05 (Holm-corrected)"


def as_of(document: MatrixDocument) -> str:
    """`, as of 40 of 200 cases`, of figures before the end."""
    progress = document["as_of"]
    return f", as of {progress['cases']:,} of {progress['of']:,} cases" if progress else ""


def ranked(document: MatrixDocument, metric: str | None) -> list[RowDocument]:
    """The rows, best first by the metric: the one named best, others that are ranked, those that are not, unscored."""
    rows: list[RowDocument] = list(document["rows"])
    if metric is None:
        return rows
    sign = 1.0 if better(document, metric) == "lower" else -1.0
    unranked = document["best"][metric]["unranked"] if metric in document["best"] else []

    def place(row: RowDocument) -> tuple[bool, bool, bool, float]:
        mean = estimate(row, metric).get("mean")
        named = is_named_best(document, row, metric)
        is_unranked = row["combination"] in unranked or not is_ranked(row)
        return mean is None, is_unranked, not named, 0.0 if mean is None else sign * mean

    return sorted(rows, key=place)


def shortened(document: MatrixDocument, rows: list[RowDocument], many: int = MANY, top: int = TOP) -> list[RowDocument]:
    """The rows for a reader with one screen: all up to `many`, else the first `top` and the baseline."""
    if len(rows) <= many:
        return rows
    # Differences are from the baseline, so a table without it could not be read.
    return rows[:top] + [row for row in rows[top:] if is_baseline(document, row)]
