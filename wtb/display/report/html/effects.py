"""What makes the difference: main effects of each factor's levels, interactions, and combinations pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from wtb.core.classes.frozen import frozen
from wtb.display.matrix import figures, summary
from wtb.display.report.html import layout
from wtb.display.report.html.markup import signed, signed_span
from wtb.display.report.html.scales import Scale, room, scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument
    from wtb.core.documents.report import (
        AttributionDocument,
        EvidenceDocument,
        InteractionEffect,
        NodeEffect,
        PairsDocument,
        SimpleEffect,
        VariantEffect,
    )


STRONGEST = 6  # interactions that are listed
_LEAST = 0.005  # of the spread, which is written as more than 0%


@frozen
class ShownLevel:
    """A level with its effect as it is written."""

    effect: VariantEffect
    is_clear: bool
    figure: Markup


@frozen
class ShownFactor:
    """A factor with what it explains, in words; `within` is how many variants have it, 0 if all of its node have."""

    name: str
    share: float
    explains: str
    within: int
    variants: Sequence[ShownLevel]


@frozen
class EffectsChart:
    """The effects by a metric.

    Attributes:
        found: All that can be told, of which only the strongest interactions are shown.
        digits: Decimals of the metric.
        on: The scale on which effects are drawn.
        style: CSS of the chart.
    """

    found: AttributionDocument
    digits: int
    on: Scale
    style: Markup
    nodes: Sequence[ShownFactor]
    interactions: Sequence[InteractionEffect]
    simple: Sequence[SimpleEffect]


@frozen
class Effects:
    """A chart for each metric."""

    charts: Sequence[EffectsChart]


def effects(document: EvidenceDocument) -> Effects | None:
    """What each factor explains of the spread between combinations, and how far each level is off the mean."""
    matrix = document["matrix"]
    if len(matrix["rows"]) < 2 or not matrix["metrics"]:
        return None
    return Effects([_chart(matrix, document["attribution"][metric]) for metric in layout.metrics(matrix)])


def _chart(matrix: MatrixDocument, attribution: AttributionDocument) -> EffectsChart:
    digits = figures.decimals(matrix, attribution["metric"])
    every = [one for node in attribution["nodes"] for one in node["variants"]]
    ends = [end for one in every for end in (one["effect"], *(one["ci"] or ()))]
    on = scale([*ends, 0.0])
    shown = [*map(_explained, attribution["nodes"]), *(_effect(one, digits) for one in every)]
    nodes = [
        ShownFactor(
            node.get("factor", node["node"]),
            node["share"],
            _explained(node),
            len(node.get("within", [])),
            [ShownLevel(one, _is_clear(node, one), _effect(one, digits)) for one in node["variants"]],
        )
        for node in sorted(attribution["nodes"], key=lambda one: -one["share"])
    ]
    interactions = [one for one in attribution["interactions"] if _counts(one["share"])]
    interactions.sort(key=lambda one: -one["share"])
    return EffectsChart(
        attribution,
        digits=digits,
        on=on,
        style=Markup("--grid:{};{}").format(on.across, room([on], shown)),
        nodes=nodes,
        interactions=interactions[:STRONGEST],
        simple=attribution.get("simple", []),
    )


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


# Rows by their numbers, with their cells: each a difference, and the class that says who is ahead.
Table = Sequence[tuple[int, Sequence[tuple[str, str]]]]


@frozen
class Pairs:
    """A table for each metric."""

    tables: Mapping[str, Table]


def pairs(document: EvidenceDocument) -> Pairs | None:
    """The best combinations against each other, by metric."""
    matrix = document["matrix"]
    tables = {metric: _table(matrix, metric, document["pairs"][metric]) for metric in layout.metrics(matrix)}
    tables = {metric: table for metric, table in tables.items() if len(table) > 1}
    return Pairs(tables) if tables else None


def _table(matrix: MatrixDocument, metric: str, attribution: PairsDocument) -> Table:
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
