"""The matrix: combination x metric, with counts, uncertainty, cost and the comparison with the baseline.

`build` returns the JSON contract, version 1, which every renderer and script reads. That of a sweep at its end can be
kept (`freeze`); `wtb.analysis.kept_matrix` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import structs

from wtb.analysis.decision import decide
from wtb.analysis.effects.attribution import attribute
from wtb.analysis.matrix import caveats
from wtb.analysis.matrix.facts import SweepFacts, read_facts
from wtb.analysis.matrix.hanging import hanging_choice, hanging_claims
from wtb.analysis.matrix.metric_figures import figures_of
from wtb.analysis.matrix.outcome_rows import node_runs_document, outcome_rows
from wtb.analysis.matrix.selection import choose, fronts, wanted_figure
from wtb.analysis.matrix.within_margin import Compared, add_standings, lack_scales
from wtb.analysis.scores import Scores
from wtb.analysis.search_history import Ledger
from wtb.core.documents.common import cell_counts
from wtb.core.documents.matrix import VERSION
from wtb.core.errors import StoreError
from wtb.core.scoring.scales import OnFailure
from wtb.core.scoring.unknown_costs import cost_warnings
from wtb.core.status import ENDED_SWEEPS, FINAL_CELLS
from wtb.planning.metric_names import margins_of
from wtb.store.database import Database
from wtb.store.read import queries, tallies
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.common import Combination
    from wtb.core.documents.matrix import (
        MatrixDocument,
    )


def build(
    database: Database,
    sweep: SweepRow,
    scored: Scores | None = None,
    *,
    edited: bool = False,
    on_failure: OnFailure | None = None,
    baseline: int | None = None,
) -> MatrixDocument:
    """Make the matrix of a sweep, whatever its status, from its scores. `read_matrix` says what it returns.

    scored: all its scores, as they count by the sweep itself, if you have read them already.
    """
    is_own = not edited and on_failure is None and baseline is None
    if on_failure is not None:
        sweep = structs.replace(sweep, spec={**sweep.spec, "on_failure": on_failure})
    if on_failure is not None or baseline is not None:
        scored = Scores(database, sweep, edited=edited, baseline=baseline)
        scored.check_baseline()
    if scored is not None and on_failure is not None:
        scored.check_failure_score("on_failure")
    scored = scored or Scores(database, sweep, edited=edited)
    matrix = matrix_from(read_facts(database, sweep, scored))
    if is_own:
        with suppress(StoreError):  # who may only read sees the same, and whoever looks next notes it
            _note_claims(database, sweep, scored, matrix)
    return matrix


def _note_claims(database: Database, sweep: SweepRow, scored: Scores, matrix: MatrixDocument) -> None:
    """Have later looks know what this one shows, also after the sweep is deleted."""
    Ledger(database, sweep, scored.choices[: scored.planned]).note(matrix)


def freeze(database: Database, sweep_id: str) -> bool:
    """Keep the matrix of a sweep that is at its end. False where it cannot be kept yet: it is not at its end, it is
    changing, or on PostgreSQL a transaction as old as its last event is still running. Raises InputError.
    """
    if tallies.kept(database, sweep_id) is not None:
        return True
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
    """Return the matrix of a sweep from what was read of it; nothing is noted of it."""
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
    """Add which rows are within a margin of the best, which one the sweep's `best` chooses, and what is decided."""
    best = sweep.spec.get("best")
    add_standings(matrix, best or {}, margins, compared)
    margin = margins.get(wanted_figure(matrix, best or {})[1])
    matrix["choice"] = choose(matrix, best, margin) if best else None
    matrix["decision"] = decide(matrix, best or {}, margin)


def _decisive(facts: SweepFacts, matrix: MatrixDocument) -> list[str]:
    """Return the warnings that bear on the decision, the first ones first."""
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
    chosen = scored.chosen_baseline
    return sweep.spec.get("baseline_row") if chosen is None else dict(scored.choices[chosen])
