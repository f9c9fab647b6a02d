"""Every combination's mean and its difference from the baseline, each drawn on its 95% interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.display.matrix import summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import (
    Scale,
    axis,
    block,
    cannot_tell,
    grid,
    interval,
    name,
    note,
    room,
    scale,
    section,
    signed,
    text,
)

OPEN = 24  # rows that are open to see; the others fold


def intervals(document: Mapping[str, Any]) -> str:
    """One chart for each metric, best first."""
    matrix = document["matrix"]
    metrics = layout.metrics(matrix)
    if not metrics or not matrix["rows"]:
        return ""
    legend = "Mean over cases and its 95% interval; ◆ could be best, □ baseline."
    if matrix["baseline"] is not None and len(matrix["rows"]) > 1:
        legend += (
            f" Beside it the difference from the baseline, over the cases that both have: filled where "
            f"{text(summary.sure_said(matrix))}. Dashed: the baseline."
        )
    return section("intervals", "Intervals", note(legend), *(_chart(matrix, metric) for metric in metrics))


def _chart(matrix: dict[str, Any], metric: str) -> str:
    rows = layout.ranked(matrix, metric, max(20, layout.DRAWN // len(layout.metrics(matrix))))
    found = {number: summary.estimate(row, metric) for number, row in rows}
    scored = [number for number, _ in rows if found[number].get("mean") is not None]
    better = summary.better(matrix, metric)
    title = f"<h3>{name(metric)} <small>{summary.arrow(matrix, metric)} {better} is better</small></h3>"
    if not scored:
        return title + cannot_tell(f"nothing is scored by {metric}")
    means = scale([end for number in scored for end in _ends(found[number], "mean", "ci")])
    deltas = [end for number in scored for end in _ends(found[number], "delta", "delta_ci")]
    change = scale([*deltas, 0.0]) if deltas else None
    base = next((found[number]["mean"] for number in scored if _is_baseline(matrix, number)), None)
    digits = summary.decimals(matrix, metric)
    figures = {number: _mean(found[number], digits) for number in scored}
    changes = {number: _difference(matrix, number, found[number], digits) for number in scored} if change else {}
    drawn = []
    for number in scored:
        one, kind = found[number], layout.kind(matrix, number, metric)
        cells = [_label(matrix, number, metric), interval(means, one["mean"], one.get("ci"), kind, base)]
        cells.append(f'<span class="figure">{figures[number]}</span>')
        if change:
            cells += [_change(matrix, number, one, change), f'<span class="figure">{changes[number]}</span>']
        drawn.append(block("div", cells, "row", f'data-row="{number}"'))
    head = _axes(matrix, means, change)
    parts = [head, *drawn[:OPEN]]
    if len(drawn) > OPEN:
        more = [f"<summary>{len(drawn) - OPEN} more combinations</summary>", *drawn[OPEN:]]
        parts.append(block("details", more))
    style = ";".join([grid(means), *([grid(change, "--grid2")] if change else [])])
    style += ";" + room([means, *([change] if change else [])], figures.values(), changes.values())
    classes = "intervals compared" if change else "intervals"
    left = len(matrix["rows"]) - len(scored)
    return title + block("div", parts, classes, f'style="{style}"') + (_left(matrix, metric, left) if left else "")


def _left(matrix: dict[str, Any], metric: str, left: int) -> str:
    unscored = sum(summary.estimate(row, metric).get("mean") is None for row in matrix["rows"])
    said = [
        f"{unscored} have no score" if unscored else "",
        f"{left - unscored} more are not drawn" * (left > unscored),
    ]
    return note(f"Of the other combinations {text(', '.join(filter(None, said)))}.")


def _ends(found: Mapping[str, Any], middle: str, ci: str) -> list[float]:
    return [] if found.get(middle) is None else [found[middle], *(found.get(ci) or ())]


def _is_baseline(matrix: dict[str, Any], number: int) -> bool:
    return summary.is_baseline(matrix, matrix["rows"][number])


def _axes(matrix: dict[str, Any], means: Scale, change: Scale | None) -> str:
    cells = [f'<span class="who faint">{layout.nodes(matrix)}</span>', axis(means), '<span class="faint">mean</span>']
    cells += [axis(change), '<span class="faint">difference</span>'] if change else []
    return block("div", cells, "row axes")


def _label(matrix: dict[str, Any], number: int, metric: str) -> str:
    mark = summary.mark(matrix, matrix["rows"][number], metric)[:1]
    return f'<span class="who">{mark and f"<b>{mark}</b> "}{layout.label(matrix, number)}</span>'


def _mean(found: Mapping[str, Any], digits: int) -> str:
    ci = found.get("ci")
    between = (
        "" if ci is None else f" <small>{summary.number(ci[0], digits)} to {summary.number(ci[1], digits)}</small>"
    )
    return summary.number(found["mean"], digits) + between


def _difference(matrix: dict[str, Any], number: int, found: Mapping[str, Any], digits: int) -> str:
    if _is_baseline(matrix, number):
        return "<small>baseline</small>"
    if found.get("delta") is None:
        return "<small>no common cases</small>"
    p = found.get("p_adjusted")
    tested = "" if p is None else f" <small>p {text(summary.probability(p))}</small>"
    return signed(found["delta"], digits) + tested


def _change(matrix: dict[str, Any], number: int, found: Mapping[str, Any], change: Scale) -> str:
    if _is_baseline(matrix, number):
        return interval(change, 0.0, None, "square", 0.0)
    if found.get("delta") is None:
        return '<span class="plot"></span>'
    kind = "dot" if summary.is_sure(matrix, found) else "ring"
    return interval(change, found["delta"], found.get("delta_ci"), kind, 0.0)
