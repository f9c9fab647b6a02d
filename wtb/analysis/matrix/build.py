"""The matrix: combinations x metrics, with counts, uncertainty, cost and the comparison with the baseline.

`build` returns the JSON contract, version 1, which every renderer and script reads. The matrix of an ended sweep can be
stored (`freeze`); `wtb.analysis.kept_matrix` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from wtb.analysis.failure_causes import add_costs
from wtb.analysis.matrix import caveats
from wtb.analysis.matrix.attribution import attribute
from wtb.analysis.matrix.caveats import hanging_choice, hanging_claims
from wtb.analysis.matrix.facts import SweepFacts, read_facts
from wtb.analysis.matrix.metric_figures import Compared, add_standings, figures_of, lack_scales
from wtb.analysis.matrix.selection import choose, decide, fronts, wanted_figure
from wtb.analysis.scores import Scores
from wtb.analysis.search_history import Ledger
from wtb.core.documents.matrix import VERSION
from wtb.core.documents.shared_types import cell_counts
from wtb.core.errors import StoreError
from wtb.core.factors import labels_of
from wtb.core.scoring.scores import OnFailure
from wtb.core.scoring.unknown_costs import cost_warnings
from wtb.core.status import ENDED_SWEEPS, FAILED_CELLS, FINAL_CELLS
from wtb.planning.metric_names import margins_of
from wtb.store.database import Database
from wtb.store.read import aggregates, queries, tallies
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.matrix import MatrixDocument, NodeRuns, RowDocument
    from wtb.core.documents.shared_types import Combination, NodeRunCounts


def outcome_rows(facts: SweepFacts) -> list[RowDocument]:
    """Return the rows of a matrix with outcomes, costs and durations, without metrics."""
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
        # Stopping a row skips its open cells; counted as outcomes they would look like failures of the row.
        is_dropped = status == "skipped" and number in scored.stopped
        row["n"] += count if status in FINAL_CELLS and not is_dropped else 0
        if status == "succeeded":
            row["succeeded"], succeeded_usd[number] = count, usd
        elif status in FAILED_CELLS:
            row["failed"] += count
            failed_usd[number] += count * (usd or 0.0)
    # Cells lost to a provider have the status `failed`, but are no results of the combination.
    for number, lost in scored.lost_of.items():
        rows[number]["failed"] -= lost
        rows[number]["lost_to_provider"] = lost
    for number, row in enumerate(rows):
        add_costs(row, succeeded_usd.get(number), failed_usd[number])
        if facts.innocent_usd[number]:
            row["cost_innocent_usd"] = facts.innocent_usd[number]
        # A partial sum would look like a low cost.
        if number in scored.without_cost:
            row["cost_usd"] = row["cost_per_success_usd"] = None
            row.pop("cost_innocent_usd", None)
    for row, latency in zip(rows, facts.latencies, strict=True):
        if latency is not None:
            row["latency_s"] = latency
    _mark_rows(rows, facts)
    return rows


def _add_levels(rows: Sequence[RowDocument]) -> None:
    """Add the labels of levels by factor to rows, if there are factors."""
    for row in rows:
        choice = row["combination"]
        if levels := {key: label for key, label in labels_of(choice).items() if key not in choice}:
            row["levels"] = levels


def _mark_rows(rows: list[RowDocument], facts: SweepFacts) -> None:
    """Add to rows why they are not ranked, and over how many cases their figures are."""
    for number, document in facts.added.documents().items():
        rows[number]["exploratory"] = document
    for number, stop in facts.stopped.documents().items():
        rows[number]["stopped"] = stop
    if facts.seen is not None:
        for row, cases in zip(rows, facts.seen.rows(), strict=False):  # none of rows that were added
            row["as_of"] = None if row.get("stopped") else cases


def node_runs_document(counted: aggregates.Rows) -> NodeRuns:
    """Return the number of node runs, their number without sharing, and their attempts."""
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


def build(
    database: Database,
    sweep: SweepRow,
    scored: Scores | None = None,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: int | None = None,
) -> MatrixDocument:
    """Build the matrix of a sweep from its scores, whatever its status; see `read_matrix` for the contents.

    Args:
        database: Where the sweep is.
        sweep: Its row.
        scored: Its scores by its own settings, if you have read them already.
        edited: Count cells whose state a person edited as well.
        on_failure: The score of a failed cell, instead of the sweep's own setting.
        baseline: The number of the row that others are compared with, instead of the sweep's own.
    """
    is_own = not edited and on_failure is None and baseline is None
    if on_failure is not None:
        sweep = structs.replace(sweep, spec={**sweep.spec, "on_failure": on_failure})
    if on_failure is not None or baseline is not None:
        scored = Scores(database, sweep, edited=edited, baseline=baseline)
        scored.check_baseline()
    if scored is not None and on_failure is not None:
        scored.check_failure_score()
    scored = scored or Scores(database, sweep, edited=edited)
    matrix = matrix_from(read_facts(database, sweep, scored))
    # Only figures by the sweep's own settings are looks: other baselines would leave claims that nobody planned.
    if is_own:
        with suppress(StoreError):  # who may only read sees the same, and whoever looks next notes it
            _note_claims(database, sweep, scored, matrix)
    return matrix


def _note_claims(database: Database, sweep: SweepRow, scored: Scores, matrix: MatrixDocument) -> None:
    """Record the shown differences for later looks, which count them even after the sweep is deleted."""
    Ledger(database, sweep, scored.choices[: scored.planned]).note(matrix)


def freeze(database: Database, sweep_id: str) -> bool:
    """Store the matrix of a sweep that has ended.

    Returns:
        True if it is stored; False if the sweep has not ended or is changing, or if, on PostgreSQL, a transaction as
        old as its last event is still running.

    Raises:
        InputError: There is no such sweep.
    """
    if tallies.kept_matrix(database, sweep_id) is not None:
        return True
    # The place is read before the sweep and its scores: if anything changes in between, `keep` does not store the
    # matrix.
    tallies.tally(database, sweep_id)
    place = tallies.whole_at(database, sweep_id)
    sweep = queries.find_sweep(database, sweep_id)
    counts = queries.cell_counts(database, sweep_id)
    if place is None or sweep.status not in ENDED_SWEEPS or any(status not in FINAL_CELLS for status in counts):
        return False
    scored = Scores(database, sweep)
    matrix = matrix_from(read_facts(database, sweep, scored))
    _note_claims(database, sweep, scored, matrix)
    return tallies.keep(database, sweep_id, matrix, place)


def matrix_from(facts: SweepFacts) -> MatrixDocument:
    """Return the matrix of a sweep from the facts that were read; this records nothing."""
    sweep, scored, seen, spent = facts.sweep, facts.scored, facts.seen, facts.runs.spent
    rows = outcome_rows(facts)
    figures, warned, compared = figures_of(facts, rows)
    matrix: MatrixDocument = {
        "version": VERSION,
        "figures": "final" if seen is None else "anytime",
        "as_of": None if seen is None else seen.as_of,
        "sweep": sweep.heading,
        "cells": cell_counts(facts.cells, facts.counts),
        "node_runs": node_runs_document(facts.runs.counts),
        "cost": {
            "usd": spent.usd,
            "unshared_usd": spent.unshared_usd,
            "tokens_in": spent.tokens_in,
            "tokens_out": spent.tokens_out,
            "unknown": list(scored.unknown_costs),
        },
        "baseline": _baseline(sweep, scored),
        **figures,
        "failures": {"causes": facts.causes, "more": facts.more_causes},
        "provider": facts.provider,
        "front": {},
        "choice": None,
        "scores_failed": sum(count for _, count, _ in scored.errors),
        "edited_left_out": 0 if scored.edited else scored.edited_cells,
        "warnings": [],
    }
    # Effects are for the end only: no test of them is valid for repeated looks.
    if seen is None and scored.grid_levels and scored.primary is not None:
        matrix["effects"] = attribute(scored, scored.primary)["sentences"]
    matrix["front"] = fronts(matrix)
    margins = {name: margin for name, margin in margins_of(sweep.spec, scored.measures).items() if name in compared}
    _decide(sweep, matrix, margins, compared)
    decisive = _decisive(facts, matrix)
    matrix["decision"]["warnings"] = len(decisive)
    matrix["warnings"] = [
        *decisive,
        *caveats.answered_after_failure(facts.provider),
        *lack_scales(margins, compared),
        *(caveats.uneven_cases(matrix) if seen is None else []),
        *warned,
    ]
    return matrix


def _decide(
    sweep: SweepRow, matrix: MatrixDocument, margins: Mapping[str, float], compared: Mapping[str, Compared]
) -> None:
    """Add which rows are within a margin of the best, the row that the sweep's `best` chooses, and the decision."""
    best = sweep.spec.get("best")
    add_standings(matrix, best or {}, margins, compared)
    margin = margins.get(wanted_figure(matrix, best or {})[1])
    matrix["choice"] = choose(matrix, best, margin) if best else None
    matrix["decision"] = decide(matrix, best or {}, margin)


def _decisive(facts: SweepFacts, matrix: MatrixDocument) -> list[str]:
    """Return the warnings that affect the decision, most important first."""
    sweep, scored = facts.sweep, facts.scored
    limit_usd = sweep.spec.get("limits", {}).get("usd")
    return [
        *caveats.about_sweep(facts),
        *caveats.lost_scores(facts.provider, sweep.id),
        *caveats.mixed_code(facts.runs.counts),
        *cost_warnings(scored.unknown_costs, limit_usd, ended=facts.has_ended),
        *caveats.data_found(sweep.spec),
        *caveats.failures_counted(scored),
        *caveats.cases_without_expected(scored),
        *hanging_choice(matrix["choice"]),
        *hanging_claims(scored, matrix["rows"], matrix["best"]),
        *(caveats.bounds_that_matter(matrix) if facts.seen is None else []),
        *caveats.not_as_submitted(sweep, matrix),
    ]


def _baseline(sweep: SweepRow, scored: Scores) -> Combination | None:
    number = scored.chosen_baseline
    return sweep.spec.get("baseline_row") if number is None else dict(scored.choices[number])
