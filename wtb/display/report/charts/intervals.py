"""Every combination's mean and its difference from the baseline, each drawn on its 95% interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from wtb.display.matrix import figures, summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import signed, span
from wtb.display.report.html.scales import room, scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, MetricEstimate, RowDocument
    from wtb.core.documents.report import EvidenceDocument


OPEN = 24  # rows that are open to see; the others fold
_SMALL = Markup("{} <small>{}</small>")


def intervals(document: EvidenceDocument) -> dict[str, Any] | None:
    """One chart for each metric, best first."""
    matrix = document["matrix"]
    metrics = layout.metrics(matrix)
    if not metrics or not matrix["rows"]:
        return None
    compared = matrix["baseline"] is not None and len(matrix["rows"]) > 1
    return {"compared": compared, "open": OPEN, "charts": [_chart(matrix, metric) for metric in metrics]}


def _chart(matrix: MatrixDocument, metric: str) -> dict[str, Any]:
    rows = layout.ranked(matrix, metric, max(20, layout.DRAWN // len(layout.metrics(matrix))))
    drawn = [_row(matrix, number, metric) for number, row in rows if _is_scored(row, metric)]
    if not drawn:
        return {"metric": metric, "drawn": []}
    means = scale([end for row in drawn for end in (row["mean"], *(row["ci"] or ()))])
    deltas = [end for row in drawn if not row["is_new"] for end in (row["delta"], *(row["delta_ci"] or ()))]
    change = scale([*deltas, 0.0]) if deltas else None
    style = [Markup("--grid:") + means.across, *([Markup("--grid2:") + change.across] if change else [])]
    changes = [row["difference"] for row in drawn] if change else []
    style.append(room([means, *([change] if change else [])], [row["figure"] for row in drawn], changes))
    return {
        "metric": metric,
        "drawn": drawn,
        "means": means,
        "change": change,
        "reference": next((row["mean"] for row in drawn if row["is_baseline"]), None),
        "style": Markup(";").join(style),
        "left_out": _left_out(matrix, metric, len(drawn)),
    }


def _is_scored(row: RowDocument, metric: str) -> bool:
    return summary.estimate(row, metric).get("mean") is not None


def _row(matrix: MatrixDocument, number: int, metric: str) -> dict[str, Any]:
    row = matrix["rows"][number]
    found, digits = summary.estimate(row, metric), figures.decimals(matrix, metric)
    is_baseline, delta = summary.is_baseline(matrix, row), found.get("delta")
    mean = figures.number(found["mean"], digits)
    return {
        "number": number,
        "mark": summary.star(matrix, row, metric),
        "kind": layout.kind(matrix, number, metric),
        "mean": found["mean"],
        "ci": found.get("ci"),
        "figure": mean if found["ci"] is None else _SMALL.format(mean, span(found["ci"], digits)),
        "is_baseline": is_baseline,
        "is_new": delta is None,
        "delta": 0.0 if is_baseline else delta,
        "delta_ci": None if is_baseline else found.get("delta_ci"),
        "delta_kind": "square" if is_baseline else "dot" if summary.is_sure(matrix, found) else "ring",
        "difference": _difference(found, digits, is_baseline),
    }


def _difference(found: MetricEstimate, digits: int, is_baseline: bool) -> Markup | str:
    if is_baseline:
        return Markup("<small>baseline</small>")
    if found.get("delta") is None:
        return Markup("<small>no common cases</small>")
    delta, p = signed(found["delta"], digits), found.get("p_adjusted")
    return delta if p is None else _SMALL.format(delta, f"p {figures.probability(p)}")


def _left_out(matrix: MatrixDocument, metric: str, drawn: int) -> str:
    """What became of the rows that are not drawn."""
    left = len(matrix["rows"]) - drawn
    unscored = sum(not _is_scored(row, metric) for row in matrix["rows"])
    parts = [f"{unscored} have no score"] if unscored else []
    parts += [f"{left - unscored} more are not drawn"] if left > unscored else []
    return ", ".join(parts)
