"""The rows of a matrix before any metric: what came of their cells, and what these took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtb.analysis.matrix.facts import SweepFacts
from wtb.analysis.matrix.failure_costs import add_costs
from wtb.core.factors.factors import labels_of
from wtb.core.status import FAILED_CELLS, FINAL_CELLS
from wtb.store.read import aggregates

if TYPE_CHECKING:
    from wtb.core.documents.common import NodeRunCounts
    from wtb.core.documents.matrix import NodeRuns, RowDocument


def outcome_rows(facts: SweepFacts) -> list[RowDocument]:
    """Return the rows of a matrix with what came of their cells, and what these took; without metrics."""
    scored = facts.scored
    rows: list[RowDocument] = [
        {
            "combination": dict(choice),
            "n": 0,
            "succeeded": 0,
            "failed": 0,
            "cost_usd": None,
            "cost_failed_usd": 0.0,
            "cost_per_success_usd": None,
            "latency_s": {"p50": None, "p95": None},
            "as_of": None,
            "metrics": {},
        }
        for choice in scored.choices
    ]
    _add_levels(rows)
    succeeded_usd: dict[int, float] = {}
    failed_usd = [*facts.failed_usd]
    groups = [group for group in scored.cell_groups if scored.edited or not group.edited]
    for number, status, count, usd in aggregates.outcomes_by_combination(groups):
        row = rows[number]
        is_dropped = status == "skipped" and number in scored.stopped
        row["n"] += count if status in FINAL_CELLS and not is_dropped else 0
        if status == "succeeded":
            row["succeeded"], succeeded_usd[number] = count, usd
        elif status in FAILED_CELLS:
            row["failed"] += count
            failed_usd[number] += count * (usd or 0.0)
    for number, lost in scored.lost_of.items():
        rows[number]["failed"] -= lost
        rows[number]["lost_to_provider"] = lost
    for number, row in enumerate(rows):
        add_costs(row, succeeded_usd.get(number), failed_usd[number])
        if facts.innocent_usd[number]:
            row["cost_innocent_usd"] = facts.innocent_usd[number]
        if number in scored.without_cost:
            row["cost_usd"] = row["cost_per_success_usd"] = None
            row.pop("cost_innocent_usd", None)
    for row, latency in zip(rows, facts.latencies, strict=True):
        if latency is not None:
            row["latency_s"] = latency
    _mark_rows(rows, facts)
    return rows


def _add_levels(rows: Sequence[RowDocument]) -> None:
    """Add to rows the labels of their levels by factor, if there are factors."""
    for row in rows:
        choice = row["combination"]
        if levels := {key: label for key, label in labels_of(choice).items() if key not in choice}:
            row["levels"] = levels


def _mark_rows(rows: list[RowDocument], facts: SweepFacts) -> None:
    """Add to rows why they are not ranked, and as of how many cases their figures are."""
    for number, document in facts.added.documents().items():
        rows[number]["exploratory"] = document
    for number, stop in facts.stopped.documents().items():
        rows[number]["stopped"] = stop
    if facts.seen is not None:
        for row, cases in zip(rows, facts.seen.rows(), strict=False):  # none of rows that were added
            row["as_of"] = None if row.get("stopped") else cases


def node_runs_document(counted: aggregates.Rows) -> NodeRuns:
    """Return how many node runs there were, how many without sharing, and how many attempts they took."""
    by_node: dict[str, NodeRunCounts] = {}
    lags: dict[str, dict[str, float | None]] = {}
    for node, variant, executed, unshared, attempts, lag_s, _ in counted:
        lags.setdefault(node, {})[variant] = lag_s
        counts = by_node.setdefault(node, {"executed": 0, "unshared": 0, "attempts": 0, "lag_s": lags[node]})
        counts["executed"] += int(executed)
        counts["unshared"] += int(unshared)
        counts["attempts"] += int(attempts)
    return {
        "executed": sum(node["executed"] for node in by_node.values()),
        "unshared": sum(node["unshared"] for node in by_node.values()),
        "attempts": sum(node["attempts"] for node in by_node.values()),
        "by_node": by_node,
    }
