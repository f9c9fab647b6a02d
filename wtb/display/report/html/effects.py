"""What makes the difference: main effects of each node's variants, interactions, and combinations pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    scrolled,
    section,
    signed,
    table,
    text,
)

STRONGEST = 6  # interactions that are listed
_LEAST = 0.005  # of the spread


def effects(document: Mapping[str, Any]) -> str:
    """What each node explains of the spread between combinations, and how far each variant is off the mean."""
    matrix = document["matrix"]
    if len(matrix["rows"]) < 2 or not matrix["metrics"]:
        return ""
    charts = [_chart(matrix, document["attribution"][metric]) for metric in layout.metrics(matrix)]
    legend = (
        "Share: how much of the spread between combinations a node's main effect explains. Effect: how far the "
        "combinations with a variant are from the mean of all, with its 95% interval; filled where that is not zero. "
        "An effect without an interval is the same in every case."
    )
    return section("effects", "What makes the difference", note(legend), *charts)


def _chart(matrix: dict[str, Any], found: Mapping[str, Any]) -> str:
    metric = found["metric"]
    title = f"<h3>{name(metric)} {summary.arrow(matrix, metric)}</h3>"
    if found["because"] and not found["nodes"]:
        return title + cannot_tell(found["because"])
    sentences = block("ul", (f"<li>{text(one, 1000)}</li>" for one in found["sentences"]), "sentences")
    digits = summary.decimals(matrix, found["metric"])
    ends = [end for node in found["nodes"] for one in node["variants"] for end in (one["effect"], *(one["ci"] or ()))]
    on = scale([*(end for end in ends if end is not None), 0.0])
    rows = [block("div", ["<span></span>", axis(on), "<span></span>"], "row axes")]
    for node in sorted(found["nodes"], key=lambda one: -(one["share"] or 0.0)):
        rows.append(_node(node))
        rows += [_variant(one, on, digits, _is_clear(node, one)) for one in node["variants"]]
    figures = [_explained(node) for node in found["nodes"]]
    figures += [_effect(one, digits) for node in found["nodes"] for one in node["variants"]]
    chart = block("div", rows, "intervals effects", f'style="{grid(on)};{room([on], figures)}"')
    missing = (
        f"{found['missing']:,} scores are missing; a case compares those that it has. " if found["missing"] else ""
    )
    over = f"Over {found['cases']:,} cases. {missing}"
    return title + sentences + chart + note(over) + _interactions(found["interactions"], digits)


def _counts(share: float | None) -> bool:
    """Whether a share of the spread is more than 0%, as it is written."""
    return share is not None and share >= _LEAST


def _explained(node: Mapping[str, Any]) -> str:
    share, p = node["share"], node["p_adjusted"]
    said = "" if share is None else f"explains {share:.0%}"
    return said + ("" if p is None else f"{', ' if said else ''}p {text(summary.probability(p))}")


def _node(node: Mapping[str, Any]) -> str:
    share = node["share"]
    bar = "" if share is None else f'<span class="share"><i style="width:{100 * min(1.0, share):.1f}%"></i></span>'
    return block(
        "div",
        [
            f'<span class="who"><b>{name(node["node"])}</b></span>',
            bar or "<span></span>",
            f'<span class="figure">{_explained(node)}</span>',
        ],
        "row node",
    )


def _is_clear(node: Mapping[str, Any], one: Mapping[str, Any]) -> bool:
    """Whether an effect is not zero: as its interval says, or the node's test where every case shows the same."""
    if not one["effect"] or not _counts(node["share"]):
        return False
    if one["ci"] is None:
        return node["p_adjusted"] is not None and node["p_adjusted"] < summary.SIGNIFICANT
    return not one["ci"][0] <= 0.0 <= one["ci"][1]


def _effect(one: Mapping[str, Any], digits: int) -> str:
    ci = one["ci"]
    written = "" if ci is None else f" <small>{signed(ci[0], digits)} to {signed(ci[1], digits)}</small>"
    return signed(one["effect"], digits) + written


def _variant(one: Mapping[str, Any], on: Scale, digits: int, is_clear: bool) -> str:
    kind = "dot" if is_clear else "ring"
    plot = "<span></span>" if one["effect"] is None else interval(on, one["effect"], one["ci"], kind, 0.0)
    who = f'<span class="who">{name(one["variant"])}</span>'
    return block("div", [who, plot, f'<span class="figure">{_effect(one, digits)}</span>'], "row")


def _interactions(found: Sequence[Mapping[str, Any]], digits: int) -> str:
    found = [one for one in found if _counts(one["share"])]
    if not found:
        return ""
    rows = []
    for one in sorted(found, key=lambda one: -one["share"])[:STRONGEST]:
        strongest = one["strongest"]
        ci = strongest and strongest["ci"]
        rows.append(
            [
                " × ".join(name(node, 40) for node in one["nodes"]),
                f"{one['share']:.0%}",
                text(summary.probability(one["p_adjusted"])),
                "" if not strongest else " with ".join(name(variant, 40) for variant in strongest["variants"]),
                "" if not strongest else signed(strongest["effect"], digits),
                "" if not ci else f"{signed(ci[0], digits)} to {signed(ci[1], digits)}",
            ]
        )
    headers = ["pair of nodes", "share", "p", "strongest", "beyond the sum of both", "95% interval"]
    return block("details", ["<summary>Interactions</summary>", table(headers, rows)])


def pairs(document: Mapping[str, Any]) -> str:
    """The best combinations against each other."""
    matrix = document["matrix"]
    parts = [_pairs(matrix, metric, document["pairs"][metric]) for metric in layout.metrics(matrix)]
    if not any(parts):
        return ""
    legend = (
        "The row less the column, over the cases that both have; filled and * where p &lt; 0.05, Holm-corrected over "
        "the pairs of the table."
    )
    return section("pairs", "Pair by pair", note(legend), *parts)


def _pairs(matrix: dict[str, Any], metric: str, found: Mapping[str, Any]) -> str:
    rows = found["rows"]
    if len(rows) < 2:
        return ""
    digits = summary.decimals(matrix, metric)
    sign = -1.0 if summary.better(matrix, metric) == "lower" else 1.0
    by_pair: dict[tuple[int, int], tuple[float | None, float | None]] = {}
    for one in found["pairs"]:
        by_pair[one["a"], one["b"]] = (one["delta"], one["p_adjusted"])
        by_pair[one["b"], one["a"]] = (None if one["delta"] is None else -one["delta"], one["p_adjusted"])
    body = []
    for place, a in enumerate(rows, 1):
        cells = [f'<th class="who">{place} {layout.label(matrix, a, 60)}</th>']
        for b in rows:
            delta, p = by_pair.get((a, b), (None, None))
            sure = p is not None and p < summary.SIGNIFICANT
            mood = "" if delta is None or not sure else (" ahead" if sign * delta > 0 else " behind")
            said = "" if a == b else signed(delta, digits) + ("*" if sure else "")
            cells.append(f'<td class="figure{" self" if a == b else mood}">{said}</td>')
        body.append(block("tr", cells))
    head = "".join(f'<th class="figure">{place}</th>' for place in range(1, len(rows) + 1))
    head = f"<thead><tr><th>{layout.nodes(matrix)}</th>{head}</tr></thead>"
    title = f"<summary>{name(metric)}: {len(rows)} combinations against each other</summary>"
    return block("details", title + scrolled(f'<table class="pairs">{head}<tbody>{"".join(body)}</tbody></table>'))
