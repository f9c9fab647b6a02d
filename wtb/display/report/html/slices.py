"""The matrix by tag: the mean of each combination within the cases of each tag, and where that is not what it seems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wtb.core import texts
from wtb.display.matrix import summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import block, name, note, scrolled, section, signed, text


def tagged(document: Mapping[str, Any]) -> str:
    """A row for each combination, a column for each tag; nothing where tags tell no cases apart."""
    matrix = document["matrix"]
    found = matrix.get("slices")
    if not found:
        return ""
    metric = found["metric"]
    digits = summary.decimals(matrix, metric)
    rows = layout.ranked(matrix, metric)
    headers = [f'<th class="left">{layout.nodes(matrix)}</th>', '<th class="figure">all</th>']
    headers += [
        f'<th class="figure">{name(one["tag"], 40)}<br><small>{texts.plural(one["cases"], "case")}</small></th>'
        for one in found["tags"]
    ]
    body = []
    for number, row in rows:
        whole = summary.number(summary.estimate(row, metric).get("mean"), digits)
        cells = [f"<td>{layout.label(matrix, number)}</td>", f'<td class="figure">{whole}</td>']
        cells += [_cell(one["rows"][number], digits) for one in found["tags"]]
        body.append(block("tr", cells))
    table = f"<table><thead><tr>{''.join(headers)}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    legend = (
        "In small: the difference from the baseline within the tag, * where p &lt; 0.05 (Holm-corrected over all tags "
        "and combinations)."
    )
    more = f" {texts.plural(found['left_out'], 'tag')} with few cases left out." if found["left_out"] else ""
    sentences = [f"<li>{text(one, 500)}</li>" for one in summary.sliced(matrix)]
    return section(
        "slices",
        f"By tag: {metric[:100]} {summary.arrow(matrix, metric)}",
        block("ul", sentences, "sentences") if sentences else "",
        scrolled(table),
        note(legend + more),
    )


def _cell(found: Mapping[str, Any], digits: int) -> str:
    p, delta = found["p_adjusted"], found["delta"]
    star = "*" if p is not None and p < summary.SIGNIFICANT else ""
    small = "" if delta is None else f" <small>{signed(delta, digits)}{star}</small>"
    return f'<td class="figure">{summary.number(found["mean"], digits)}{small}</td>'
