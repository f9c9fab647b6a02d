"""The matrix as CSV (RFC 4180): one line for each combination and metric, for spreadsheets and pandas.

Figures are in full precision, undefined ones are empty. Text that a spreadsheet would run as a formula
starts with an apostrophe, which spreadsheets do not show (OWASP, "CSV Injection").
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wtb.core.factors.factors import label_columns
from wtb.display.matrix import summary

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, RowDocument


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
Figure = str | float | None
_COLUMNS = (
    "metric",
    "better",
    "n",
    "failed",
    "lost_to_provider",
    "n_pairs",
    "mean",
    "ci_low",
    "ci_high",
    "delta",
    "delta_ci_low",
    "delta_ci_high",
    "p_adjusted",
    "p_uncorrected",
    "best",
    "clear",
    "baseline",
    "cost_usd",
    "cost_failed_usd",
    "cost_per_success_usd",
    "cost_innocent_usd",
    "latency_p50_s",
    "latency_p95_s",
    "exploratory",
    "within",
    "behind_low",
    "behind_high",
    "row",
)


def render(document: MatrixDocument) -> str:
    """The matrix as CSV with a header.

    Args:
        document: The matrix.

    Returns:
        A line for each combination and metric; without evaluators one for each combination, its metric empty. `n` is
        of the metric; the columns `node.NAME` have the combination, one for each varied node, and `factor.NODE.NAME`
        the levels of factors. `p_adjusted` belongs to the interval of `delta`: both are corrected. `row` is
        the number of the combination in the matrix.
    """
    nodes = list(dict.fromkeys(node for row in document["rows"] for node in row["combination"]))
    factors = [key for key in label_columns([row["combination"] for row in document["rows"]]) if key not in nodes]
    lines: list[list[Figure]] = [
        ["sweep", *(f"node.{node}" for node in nodes), *(f"factor.{key}" for key in factors), *_COLUMNS]
    ]
    numbers = document["view"]["rows"] if "view" in document else range(len(document["rows"]))
    for number in numbers:
        row = document["rows"][number]
        names = [document["sweep"]["id"], *(row["combination"].get(node, "") for node in nodes)]
        names += [summary.label(row, key) for key in factors]
        for metric in summary.tabled(document):
            values = {**_values(document, row, metric), "row": number}
            lines.append([*names, *(values.get(column) for column in _COLUMNS)])
    return written(lines)


def _values(document: MatrixDocument, row: RowDocument, metric: str | None) -> dict[str, Figure]:
    values: dict[str, Figure] = {
        "failed": row["failed"],
        "lost_to_provider": row.get("lost_to_provider", 0),
        "baseline": _flag(summary.is_baseline(document, row)),
        "cost_usd": row.get("cost_usd"),
        "cost_failed_usd": row.get("cost_failed_usd"),
        "cost_per_success_usd": row.get("cost_per_success_usd"),
        "cost_innocent_usd": row.get("cost_innocent_usd"),
        "latency_p50_s": row["latency_s"]["p50"],
        "latency_p95_s": row["latency_s"]["p95"],
        "exploratory": _flag(bool(row.get("exploratory"))),
    }
    if metric is None:
        return {**values, "n": row["n"]}
    found = summary.estimate(row, metric)
    low, high = found.get("ci") or (None, None)
    delta_low, delta_high = found.get("delta_ci") or (None, None)
    best = summary.is_best(document, row, metric)
    within = found.get("within")
    behind_low, behind_high = (within and within["behind"]) or (None, None)
    return {
        **values,
        "within": None if within is None else summary.within_words(within),
        "behind_low": behind_low,
        "behind_high": behind_high,
        "metric": metric,
        "better": summary.better(document, metric),
        "n": found["n"],
        "n_pairs": found.get("n_pairs"),
        "mean": found.get("mean"),
        "delta": found.get("delta"),
        "p_adjusted": found.get("p_adjusted"),
        "p_uncorrected": found.get("p"),
        "ci_low": low,
        "ci_high": high,
        "delta_ci_low": delta_low,
        "delta_ci_high": delta_high,
        "best": _flag(best),
        "clear": _flag(document["best"][metric]["clear"]) if best else None,
    }


def _flag(value: bool) -> str:
    return "yes" if value else "no"


def written(lines: Iterable[Iterable[Any]]) -> str:
    """Return lines as CSV (RFC 4180), with an apostrophe before text that a spreadsheet would run as a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(safe, line) for line in lines)
    return text.getvalue()


def safe(value: Any) -> Any:
    """The value, with an apostrophe before text that starts like a formula; numbers are left alone."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
