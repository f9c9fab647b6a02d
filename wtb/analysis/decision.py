"""The decision of a sweep: which combination to ship, what that rests on, and the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wtb.analysis.matrix.selection import choose, is_within, wanted_figure

if TYPE_CHECKING:
    from wtb.core.documents.common import Combination
    from wtb.core.documents.matrix import (
        Basis,
        BestDocument,
        ChoiceDocument,
        DecisionDocument,
        MatrixDocument,
        RowDocument,
    )
    from wtb.core.tree.stored_spec import Best


def decide(matrix: MatrixDocument, best: Best, margin: float | None) -> DecisionDocument:
    """Return the decision of a sweep.

    Args:
        matrix: Its matrix.
        best: That of the sweep file, empty if there is none.
        margin: That of the metric that `best` is about.
    """
    choice = matrix["choice"] or choose(matrix, best, margin)
    _, name = wanted_figure(matrix, best)
    metric = name if name in matrix["metrics"] else None
    row = next((row for row in matrix["rows"] if row["combination"] == choice["combination"]), None)
    leader = None if metric is None else matrix["best"].get(metric)
    estimate = None if row is None or metric is None else row["metrics"].get(metric)
    within = None if estimate is None else estimate.get("within")
    basis = None if row is None else _basis(matrix, choice, leader)
    ties = [] if row is None or metric is None else _ties(matrix, choice, leader, metric, basis)
    needed = None if leader is None else leader["cases_needed"]
    return {
        "objective": choice["objective"],
        "metric": metric,
        "margin": margin,
        "combination": choice["combination"],
        "because": choice["because"] if matrix["metrics"] else None,
        "basis": basis,
        "ties": ties,
        "is_cheapest": None if row is None else _is_cheapest(row, matrix["rows"], ties),
        "mean": None if estimate is None else estimate["mean"],
        "ci": None if estimate is None else estimate["ci"],
        "behind": None if within is None else within["behind"],
        "cost_usd": None if row is None else row["cost_usd"],
        "latency_s": None if row is None else row["latency_s"]["p50"],
        "cases": 0 if leader is None else leader["cases"],
        "cases_needed": None if needed is None else needed[0],
        "is_final": matrix["figures"] == "final",
        "warnings": 0,
    }


def _basis(matrix: MatrixDocument, choice: ChoiceDocument, leader: BestDocument | None) -> Basis:
    """Return what a recommendation rests on."""
    if leader is None:
        return "figure"
    if choice.get("within"):
        return "within"
    if len(matrix["rows"]) == 1 or leader["rival"] is None:
        return "only"
    if leader["clear"] and leader["combination"] == choice["combination"]:
        return "best"
    return "not shown" if "margin" in choice else "leads"


def _ties(
    matrix: MatrixDocument, choice: ChoiceDocument, leader: BestDocument | None, metric: str, basis: Basis | None
) -> list[Combination]:
    """Return the other combinations between which figures do not decide."""
    if basis == "within":
        names = [row["combination"] for row in matrix["rows"] if is_within(row, metric)]
    elif basis in ("leads", "not shown") and leader is not None:
        names = leader["candidates"]
    else:
        return []
    return [name for name in names if name != choice["combination"]]


def _is_cheapest(row: RowDocument, rows: list[RowDocument], ties: list[Combination]) -> bool | None:
    costs = [other["cost_per_success_usd"] for other in rows if other["combination"] in ties]
    own = row["cost_per_success_usd"]
    known_costs = [cost for cost in costs if cost is not None]
    if own is None or not ties or len(known_costs) < len(costs) or not any([own, *known_costs]):
        return None
    return all(own <= cost for cost in known_costs)
