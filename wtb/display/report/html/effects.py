"""What makes the difference: main effects of each node's variants, interactions, and combinations pair by pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from wtb.display.matrix import figures, summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import signed, signed_span
from wtb.display.report.html.scales import room, scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import (
        AttributionDocument,
        EvidenceDocument,
        NodeEffect,
        PairsDocument,
        VariantEffect,
    )


STRONGEST = 6  # interactions that are listed
_LEAST = 0.005  # of the spread, which is written as more than 0%


def effects(document: EvidenceDocument) -> dict[str, Any] | None:
    """What each node explains of the spread between combinations, and how far each variant is off the mean."""
    matrix = document["matrix"]
    if len(matrix["rows"]) < 2 or not matrix["metrics"]:
        return None
    return {"charts": [_chart(matrix, document["attribution"][metric]) for metric in layout.metrics(matrix)]}


def _chart(matrix: MatrixDocument, attribution: AttributionDocument) -> dict[str, Any]:
    digits = figures.decimals(matrix, attribution["metric"])
    every = [one for node in attribution["nodes"] for one in node["variants"]]
    ends = [end for one in every for end in (one["effect"], *(one["ci"] or ()))]
    on = scale([*ends, 0.0])
    shown = [*map(_explained, attribution["nodes"]), *(_effect(one, digits) for one in every)]
    nodes = [
        {
            **node,
            "explains": _explained(node),
            "variants": [
                {**one, "is_clear": _is_clear(node, one), "figure": _effect(one, digits)} for one in node["variants"]
            ],
        }
        for node in sorted(attribution["nodes"], key=lambda one: -one["share"])
    ]
    interactions = [one for one in attribution["interactions"] if _counts(one["share"])]
    interactions.sort(key=lambda one: -one["share"])
    return {
        **attribution,
        "digits": digits,
        "on": on,
        "style": Markup("--grid:{};{}").format(on.across, room([on], shown)),
        "nodes": nodes,
        "interactions": interactions[:STRONGEST],
    }


def _counts(share: float) -> bool:
    return share >= _LEAST


def _explained(node: NodeEffect) -> str:
    return f"explains {node['share']:.0%}, p {figures.probability(node['p_adjusted'])}"


def _is_clear(node: NodeEffect, one: VariantEffect) -> bool:
    """True if an effect is not zero by its interval, or by the node's test where every case shows the same."""
    if not one["effect"] or not _counts(node["share"]):
        return False
    if one["ci"] is None:
        return node["p_adjusted"] < summary.SIGNIFICANT
    return not one["ci"][0] <= 0.0 <= one["ci"][1]


def _effect(one: VariantEffect, digits: int) -> Markup:
    figure = Markup("{}").format(signed(one["effect"], digits))
    return figure if one["ci"] is None else figure + Markup(" <small>{}</small>").format(signed_span(one["ci"], digits))


def pairs(document: EvidenceDocument) -> dict[str, Any] | None:
    """The best combinations against each other, by metric."""
    matrix = document["matrix"]
    tables = {metric: _table(matrix, metric, document["pairs"][metric]) for metric in layout.metrics(matrix)}
    tables = {metric: table for metric, table in tables.items() if len(table) > 1}
    return {"tables": tables} if tables else None


def _table(matrix: MatrixDocument, metric: str, attribution: PairsDocument) -> list[tuple[int, list[tuple[str, str]]]]:
    """Rows with their cells: each a difference, and the class that says who is ahead."""
    digits = figures.decimals(matrix, metric)
    sign = -1.0 if summary.better(matrix, metric) == "lower" else 1.0
    by_pair: dict[tuple[int, int], tuple[float | None, float | None]] = {}
    for one in attribution["pairs"]:
        by_pair[one["a"], one["b"]] = (one["delta"], one["p_adjusted"])
        by_pair[one["b"], one["a"]] = (None if one["delta"] is None else -one["delta"], one["p_adjusted"])

    def cell(a: int, b: int) -> tuple[str, str]:
        if a == b:
            return "", " self"
        delta, p = by_pair.get((a, b), (None, None))
        if delta is None or p is None or p >= summary.SIGNIFICANT:
            return signed(delta, digits), ""
        return f"{signed(delta, digits)}*", " ahead" if sign * delta > 0 else " behind"

    return [(a, [cell(a, b) for b in attribution["rows"]]) for a in attribution["rows"]]
