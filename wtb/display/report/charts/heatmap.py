"""The matrix as a heat map: a row for each combination, a column for each metric, that sorts and filters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from html import escape
from typing import Any

from wtb.core import texts
from wtb.display.matrix import summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import block, name, note, scrolled, section, signed, text

FEW = 4  # rows for which a filter is of no use


def heatmap(document: Mapping[str, Any]) -> str:
    """Figures with their differences from the baseline; darker and a longer bar is better, within a column."""
    matrix = document["matrix"]
    if not matrix["rows"]:
        return ""
    metrics = layout.metrics(matrix)
    first = metrics[0] if metrics else None
    rows = layout.ranked(matrix, first)
    nodes = summary.shown_nodes(matrix)
    ranges = {metric: _range(rows, metric) for metric in metrics}
    digits = {metric: summary.decimals(matrix, metric) for metric in metrics}
    apart = {
        metric: max(len(_difference(matrix, row, metric, digits[metric])) for _, row in rows) for metric in metrics
    }
    costs = summary.costs(matrix, [row for _, row in rows])
    failed = any(row["failed"] for _, row in rows)
    named = partial(summary.heading, matrix)
    body = []
    for place, (number, row) in enumerate(rows):
        tag = '<span class="tag">baseline</span>' if summary.is_baseline(matrix, row) else ""
        cells = [f'<td class="narrow">{layout.label(matrix, number)}{tag}</td>']
        cells += [_variant(row["combination"].get(node, ""), "" if i else tag) for i, node in enumerate(nodes)]
        cells += [_figure(row["failed"], f"{row['failed']:,}")] if failed else []
        cells += [_score(matrix, number, metric, digits[metric], ranges[metric], apart[metric]) for metric in metrics]
        cells += [_figure(row[one.key], one.cells[place]) for one in costs]
        cells.append(_figure(row["latency_s"]["p50"], texts.duration(row["latency_s"]["p50"])))
        cells.append(_figure(row["n"], f"{row['n']:,}"))
        body.append(block("tr", cells, "baseline" if tag else "", f'data-row="{number}"'))
    headers = [f'<th class="narrow">{layout.nodes(matrix)}</th>']
    headers += [f'<th class="node" data-node="{text(node)}">{name(node)}</th>' for node in nodes]
    headers += [f'<th class="figure">{named("failed")}</th>'] if failed else []
    headers += [
        f'<th class="figure" data-better="{escape(summary.better(matrix, metric))}">'
        f"{name(metric)} {summary.arrow(matrix, metric)}</th>"
        for metric in metrics
    ]
    others = [*(one.name for one in costs), named("p50"), named("n")]
    headers += [f'<th class="figure">{other}</th>' for other in others]
    inside = f"<thead><tr>{''.join(headers)}</tr></thead><tbody>{''.join(body)}</tbody>"
    left = len(matrix["rows"]) - len(rows)
    return section(
        "matrix",
        "Matrix",
        _controls(matrix, [row for _, row in rows], nodes),
        scrolled(f'<table class="heatmap">{inside}</table>'),
        note(_legend(matrix, metrics, costs)),
        note(f"The best {len(rows):,} of {len(matrix['rows']):,} combinations are shown.") if left else "",
    )


def _variant(variant: str, tag: str) -> str:
    return f'<td class="node" data-name="{text(variant)}">{name(variant, 24 if tag else 60)}{tag}</td>'


def _range(rows: list[layout.Numbered], metric: str) -> tuple[float, float]:
    means = [mean for _, row in rows if (mean := summary.estimate(row, metric).get("mean")) is not None]
    return (min(means), max(means)) if means else (0.0, 0.0)


def _difference(matrix: dict[str, Any], row: Mapping[str, Any], metric: str, digits: int) -> str:
    found = summary.estimate(row, metric)
    delta = found.get("delta")
    if delta is None or summary.is_baseline(matrix, row):
        return ""
    return signed(delta, digits) + ("*" if summary.is_sure(matrix, found) else "")


def _score(
    matrix: dict[str, Any], number: int, metric: str, digits: int, among: tuple[float, float], apart: int
) -> str:
    """A mean and its difference from the baseline, which has room for `apart` characters, so that means line up."""
    row = matrix["rows"][number]
    found = summary.estimate(row, metric)
    mean = found.get("mean")
    if mean is None:
        return f'<td class="figure none">{texts.MISSING}</td>'
    low, high = among
    goodness = 0.0 if high == low else (mean - low) / (high - low)
    if summary.better(matrix, metric) == "lower" and high != low:
        goodness = 1.0 - goodness
    mark = summary.mark(matrix, row, metric)[:1]
    marks = (f'<b class="star">{mark}</b>' if mark else "") + (
        "<i>◆</i>" if number in layout.on_front(matrix, metric) else ""
    )
    ci = found.get("ci")
    title = ""
    if ci is not None:
        title = f' title="95% interval {summary.number(ci[0], digits)} to {summary.number(ci[1], digits)}"'
    small = f'<small style="--wide:{apart}ch">{_difference(matrix, row, metric, digits)}</small>' if apart else ""
    return (
        f'<td class="figure heat" data-v="{mean:.6g}" style="--v:{100 * goodness:.0f}"{title}>'
        f"{marks}{summary.number(mean, digits)}{small}</td>"
    )


def _figure(value: float | None, said: str) -> str:
    return f'<td class="figure"{"" if value is None else f" data-v={chr(34)}{value:.6g}{chr(34)}"}>{escape(said)}</td>'


def _controls(matrix: dict[str, Any], rows: list[Mapping[str, Any]], nodes: list[str]) -> str:
    """A filter by text and by variant, for readers with scripts."""
    if len(rows) < FEW:
        return ""
    groups = []
    for node in nodes:
        variants = list(dict.fromkeys(row["combination"].get(node, "") for row in rows))
        if 1 < len(variants) <= 12:
            chips = (
                f'<button type="button" aria-pressed="false" data-node="{text(node)}" '
                f'data-variant="{text(variant)}">{name(variant, 30)}</button>'
                for variant in variants
            )
            groups.append(f'<div class="chips"><span>{name(node, 30)}</span>{"".join(chips)}</div>')
    found = '<input type="search" placeholder="Filter" aria-label="Filter combinations"><output></output>'
    return block("div", [f'<div class="chips">{found}</div>', *groups], "controls", "hidden")


def _legend(matrix: dict[str, Any], metrics: list[str], costs: list[summary.Money]) -> str:
    said = []
    if metrics and len(matrix["rows"]) > 1:
        said.append("Darker, with a longer bar: better within the column. ★ best, ☆ could be best.")
        if any(layout.on_front(matrix, metric) for metric in metrics):
            what = "that metric, cost and time" if costs else "both that metric and time"
            said.append(f"◆ no other combination is better in {what} at once.")
        if matrix["baseline"] is not None:
            said.append(f"In small: the difference from the baseline, * where {text(summary.sure_said(matrix))}.")
    p50, n = (summary.heading(matrix, column) for column in ("p50", "n"))
    said += [f"{one.name}: {one.means}" for one in costs]
    said.append(f"{p50}: {'' if p50 == 'median time' else 'median time '}of a cell.")
    return " ".join([*said, f"{n}: {'' if n == 'cells' else 'cells '}with an outcome."])
