"""The matrix: combination x metric, with counts, uncertainty, cost and the comparison with the baseline.

`build` returns the JSON contract, version 1, which every renderer and script reads. That of a sweep at its end can be
kept (`freeze`); `wtb.analysis.kept_matrix` reads it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from wtb.analysis import interim
from wtb.analysis.decision import decide
from wtb.analysis.effects.attribution import attribute
from wtb.analysis.failure_causes import causes
from wtb.analysis.judges.models import models_of_judges
from wtb.analysis.matrix.added_rows import AddedRows
from wtb.analysis.matrix.caveats import (
    bounds_that_matter,
    cases_without_expected,
    correct_exploratory,
    data_found,
    failures_counted,
)
from wtb.analysis.matrix.class_counts import add_class_counts, few_of_class
from wtb.analysis.matrix.failure_costs import add_costs, failed_attempts_usd
from wtb.analysis.matrix.hanging import hanging_choice, hanging_claims, uneven_differences, unseen_claims
from wtb.analysis.matrix.noise_sources import noise_of
from wtb.analysis.matrix.selection import choose, fronts, wanted_figure
from wtb.analysis.matrix.slices import slices
from wtb.analysis.matrix.stopped_rows import StoppedRows
from wtb.analysis.matrix.within_margin import Compared, add_standings, lack_scales
from wtb.analysis.scores import Scores, ScoreTable
from wtb.analysis.search_history import Ledger, Tried
from wtb.analysis.search_history import sentences as looks_in_words
from wtb.analysis.statistics import Comparison, Design, compare
from wtb.analysis.statistics.comparing import Estimate
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.sequential.anytime import limit_from
from wtb.analysis.statistics.sequential.running import Method
from wtb.analysis.statistics.units import FEW, FEWEST
from wtb.core.documents.common import cell_counts
from wtb.core.documents.matrix import VERSION, is_ranked
from wtb.core.errors import StoreError
from wtb.core.factors.factors import labels_of
from wtb.core.scoring.measure import Measure
from wtb.core.scoring.scales import OnFailure, Scale
from wtb.core.scoring.unknown_costs import cost_warnings
from wtb.core.status import ENDED_SWEEPS, FAILED_CELLS, FINAL_CELLS
from wtb.core.texts import listed_names, plural
from wtb.core.tree.combinations import in_words
from wtb.planning.metric_names import margins_of
from wtb.store.database import Database
from wtb.store.read import aggregates, outcomes, queries, tallies
from wtb.store.rows.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.common import Combination, NodeRunCounts
    from wtb.core.documents.matrix import (
        BestDocument,
        MatrixDocument,
        MatrixFigures,
        MetricDocument,
        MetricEstimate,
        NodeRuns,
        ProviderDocument,
        RowDocument,
        SlicesDocument,
        TagRow,
    )


T = TypeVar("T")
_UNTOLD: TagRow = {"mean": None, "n_pairs": 0, "delta": None, "delta_ci": None, "p": None, "p_adjusted": None}


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
        sweep = replace(sweep, spec={**sweep.spec, "on_failure": on_failure})
    if on_failure is not None or baseline is not None:
        scored = Scores(database, sweep, edited=edited, baseline=baseline)
        scored.check_baseline()
    if scored is not None and on_failure is not None:
        scored.check_failure_score("on_failure")
    scored = scored or Scores(database, sweep, edited=edited)
    matrix = made(database, sweep, scored)
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
    matrix = made(database, sweep, scored)
    _note_claims(database, sweep, scored, matrix)
    return tallies.keep(database, sweep_id, matrix, place)


def made(database: Database, sweep: SweepRow, scored: Scores) -> MatrixDocument:
    """The matrix of a sweep as it comes from its scores; nothing is noted of it."""
    sweep_id = sweep.id
    counts = dict[str, int]()
    for group in scored.cell_groups:
        counts[group.status] = counts.get(group.status, 0) + group.cells
    best = sweep.spec.get("best")
    has_ended = all(status in FINAL_CELLS for status in counts)
    seen = interim.view(database, sweep, scored.planned, scored.cell_groups)
    runs = aggregates.node_run_totals(database, sweep_id)
    rows = _outcomes(database, sweep_id, scored, runs)
    figures, warned, compared = _rows(database, sweep, scored, rows, seen, has_ended=has_ended)
    causes_found, more = causes(database, sweep) if counts.keys() & {"failed", "set_aside"} else ([], 0)
    errors, spent = scored.errors, runs.spent
    matrix: MatrixDocument = {
        "version": VERSION,
        "figures": "final" if seen is None else "anytime",
        "as_of": None if seen is None else seen.as_of,
        "sweep": sweep.heading,
        "cells": cell_counts(sum(counts.values()), counts),
        "node_runs": _node_runs(runs.counts),
        "cost": {
            "usd": spent.usd,
            "unshared_usd": spent.unshared_usd,
            "tokens_in": spent.tokens_in,
            "tokens_out": spent.tokens_out,
            "unknown": list(scored.unknown_costs),
        },
        "baseline": _baseline(sweep, scored),
        **figures,
        "failures": {"causes": causes_found, "more": more},
        "provider": _provider(database, sweep_id, scored, sum(counts.values()), has_failed=runs.has_failed),
        "front": {},
        "choice": None,
        "scores_failed": sum(count for _, count, _ in errors),
        "edited_left_out": 0 if scored.edited else scored.edited_cells,
        "warnings": [],
    }
    if seen is None and scored.grid_levels and scored.primary is not None:
        matrix["effects"] = attribute(scored, scored.primary)["sentences"]
    matrix["front"] = fronts(matrix)
    margins = {name: margin for name, margin in margins_of(sweep.spec, scored.measures).items() if name in compared}
    add_standings(matrix, best or {}, margins, compared)
    margin = margins.get(wanted_figure(matrix, best or {})[1])
    matrix["choice"] = choose(matrix, best, margin) if best else None
    matrix["decision"] = decide(matrix, best or {}, margin)
    about_costs = cost_warnings(scored.unknown_costs, sweep.spec.get("limits", {}).get("usd"), ended=has_ended)
    decisive = [
        *_warnings(database, sweep, counts, errors),
        *_lost_scores(matrix["provider"], sweep_id),
        *_mixed(runs.counts),
        *about_costs,
        *data_found(sweep.spec),
        *failures_counted(scored),
        *cases_without_expected(scored),
        *hanging_choice(matrix["choice"]),
        *hanging_claims(scored, rows, matrix["best"]),
        *(bounds_that_matter(matrix) if seen is None else []),
        *_not_as_submitted(sweep, matrix),
    ]
    matrix["decision"]["warnings"] = len(decisive)
    matrix["warnings"] = [
        *decisive,
        *_answered(matrix["provider"]),
        *lack_scales(margins, compared),
        *(_uneven(matrix) if seen is None else []),
        *warned,
    ]
    return matrix


def _not_as_submitted(sweep: SweepRow, matrix: MatrixDocument) -> list[str]:
    """Warn of another baseline than the sweep's own, and of cells that a person edited and that are left out."""
    found = []
    if matrix["baseline"] != sweep.spec.get("baseline_row"):
        found.append(_chosen_baseline(sweep, matrix["baseline"] or {}))
    if left_out := matrix["edited_left_out"]:
        one = left_out == 1
        kept_out = "1 edited cell is" if one else f"{left_out:,} edited cells are"
        found.append(f"{kept_out} left out: a person changed {'its' if one else 'their'} state")
    return found


def _provider(database: Database, sweep_id: str, scored: Scores, cells: int, *, has_failed: bool) -> ProviderDocument:
    lost = sum(scored.lost_of.values())
    attempts = aggregates.provider_attempts(database, sweep_id) if has_failed else 0
    lost_scores = outcomes.scores_lost_to_provider(database, sweep_id) if scored.errors else []
    return {
        "lost": lost,
        "share": lost / cells if cells else 0.0,
        "attempts": attempts,
        "scores": sum(count for *_, count in lost_scores),
        "answered_after_failure": aggregates.answered_after_failure(database, sweep_id),
    }


def _answered(failures: ProviderDocument) -> list[str]:
    count = failures["answered_after_failure"]
    if not count:
        return []
    runs = "1 node run" if count == 1 else f"{count:,} node runs"
    return [
        f"{runs} answered after a failed call: a provider failed, the node caught the error, and what it did instead "
        "is graded; let the error through, so that WTB waits for the provider"
    ]


def _lost_scores(failures: ProviderDocument, sweep_id: str) -> list[str]:
    count = failures.get("scores", 0)
    if not count:
        return []
    lost = "1 score was" if count == 1 else f"{count:,} scores were"
    return [
        f"{lost} lost to a provider that failed in an evaluator, and left out, not graded: score again with "
        f"`wtb score {sweep_id}`"
    ]


def _baseline(sweep: SweepRow, scored: Scores) -> Combination | None:
    chosen = scored.chosen_baseline
    return sweep.spec.get("baseline_row") if chosen is None else dict(scored.choices[chosen])


def _chosen_baseline(sweep: SweepRow, chosen: Combination) -> str:
    named = sweep.spec.get("baseline_row")
    own = "the sweep names none" if named is None else f"the sweep's own is {in_words(named)}"
    return (
        f"differences are from {in_words(chosen)}, which whoever looks chose ({own}): p allows for the number of rows, "
        "and not for baselines that are tried one after the other"
    )


def _node_runs(counted: aggregates.Rows) -> NodeRuns:
    by_node: dict[str, NodeRunCounts] = {}
    lags: dict[str, dict[str, float | None]] = {}
    for node, variant, executed, unshared, tried, lag_s, _ in counted:
        lags.setdefault(node, {})[variant] = lag_s
        counts = by_node.setdefault(node, {"executed": 0, "unshared": 0, "attempts": 0, "lag_s": lags[node]})
        counts["executed"] += int(executed)
        counts["unshared"] += int(unshared)
        counts["attempts"] += int(tried)
    return {
        "executed": sum(node["executed"] for node in by_node.values()),
        "unshared": sum(node["unshared"] for node in by_node.values()),
        "attempts": sum(node["attempts"] for node in by_node.values()),
        "by_node": by_node,
    }


def _rows(
    database: Database,
    sweep: SweepRow,
    scored: Scores,
    rows: list[RowDocument],
    seen: interim.View | None,
    *,
    has_ended: bool,
) -> tuple[MatrixFigures, list[str], dict[str, Compared]]:
    """Return what rests on scores, which it adds to the rows, what to be warned of, and rows as they were compared."""
    choices, added = scored.choices[: scored.planned], AddedRows(database, sweep, scored)
    stopped = StoppedRows(scored)
    _mark_rows(rows, added, stopped, seen)
    primary, names = scored.primary, list(scored.measures)
    best: dict[str, BestDocument] = {}
    metrics: dict[str, MetricDocument] = {}
    skewed: dict[int, list[str]] = {}
    ledger, tried, designs = Ledger(database, sweep, choices), dict[str, Tried](), dict[str, Design]()
    unevens, by = dict[str, Sequence[int]](), dict[str, Compared]()
    units, sliced, noise = None, None, None
    for name in names:
        measure, table = scored.measures[name], stopped.blanked(scored.planned_table(name))
        tried[name] = ledger.tried(name)
        design = designs[name] = _design(scored, name, table, tried[name])
        scale = interim.bounds(name, measure, sweep.spec)
        compared, interval = _compared(table, design, scale, seen)
        by[name] = Compared(table, design, compared, scale, seen, partial(ledger.standings, name))
        if name == primary:
            units = table.count_units()
            if seen is None:
                sliced = _sliced(database, sweep, scored, table, name, design)
                noise = noise_of(database, sweep, name, choices)
        bounds = table.bounds(measure, scored.cells(name)) if has_ended else [None] * len(choices)
        estimates = stopped.placed_in([*compared.rows, *added.estimates(name)], name)
        for row, estimate, ends in zip(rows, estimates, [*bounds, *([None] * added.count)], strict=True):
            row["metrics"][name] = _estimate(estimate, None if row.get("stopped") else ends)
        best[name] = best_of(compared, choices, replace(tried[name], n=added.tried(name) or tried[name].n))
        metrics[name] = _metric(measure, table, interval, scored.without_expected.get(name, 0))
        add_class_counts(name, table, rows, metrics[name])
        unevens[name] = compared.uneven
        if compared.skewed is not None:
            skewed.setdefault(compared.skewed, []).append(name)
    left = {name: tried[name].share for name in names[1:]}
    correct_exploratory(rows[: len(choices)], left, {name: designs[name].claimed for name in names[1:]})
    for number, shares in added.shares(names[1:]):
        correct_exploratory([rows[number]], shares)
    warnings = [
        f"the intervals of {listed_names(names)} rest on {count:,} cases with very uneven scores: they cover the "
        "truth less often than 95 times of 100"
        for count, names in skewed.items()
    ]
    warnings += _clustered(units) if seen is None else _looked_at(seen, metrics, len(choices))
    warnings += few_of_class(metrics.values())
    warnings += [*looks_in_words(tried), *added.sentences(), *stopped.sentences()]
    warnings += [*unseen_claims(rows, metrics), *uneven_differences(rows, unevens, skewed.values())]
    figures: MatrixFigures = {
        "rows": rows,
        "primary": primary,
        "primary_named": primary is not None and primary == sweep.spec.get("primary"),
        "best": best,
        "metrics": metrics,
        "clusters": units,
        "slices": sliced,
        "noise": noise,
    }
    return figures, warnings, by


def _add_levels(rows: Sequence[RowDocument]) -> None:
    """Add to rows the labels of their levels by factor, if there are factors."""
    for row in rows:
        choice = row["combination"]
        if levels := {key: label for key, label in labels_of(choice).items() if key not in choice}:
            row["levels"] = levels


def _mark_rows(rows: list[RowDocument], added: AddedRows, stopped: StoppedRows, seen: interim.View | None) -> None:
    """Add to rows why they are not ranked, and as of how many cases their figures are."""
    for number, document in added.documents().items():
        rows[number]["exploratory"] = document
    for number, stop in stopped.documents().items():
        rows[number]["stopped"] = stop
    if seen is not None:
        for row, cases in zip(rows, seen.rows(), strict=False):  # none of rows that were added
            row["as_of"] = None if row.get("stopped") else cases


def _outcomes(database: Database, sweep_id: str, scored: Scores, runs: aggregates.NodeRunTotals) -> list[RowDocument]:
    """The rows with what came of their cells, and what these took."""
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
    failed_usd, innocent_usd = [0.0] * len(rows), [0.0] * len(rows)
    if runs.has_failed:
        failed_usd, innocent_usd = failed_attempts_usd(database, sweep_id, scored.choices)
    found = [group for group in scored.cell_groups if scored.edited or not group.edited]
    for number, status, count, usd in aggregates.outcomes_by_combination(found):
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
        if innocent_usd[number]:
            row["cost_innocent_usd"] = innocent_usd[number]
        if number in scored.without_cost:
            row["cost_usd"] = row["cost_per_success_usd"] = None
            row.pop("cost_innocent_usd", None)
    _add_latencies(rows, aggregates.latencies(database, sweep_id, edited=scored.edited))
    return rows


def _sliced(
    database: Database, sweep: SweepRow, scored: Scores, table: ScoreTable, metric: str, design: Design
) -> SlicesDocument | None:
    """By tag, of rows that were planned; None where tags tell no cases apart, or figures are no means over cases."""
    if design.figure is not None:
        return None
    tags = outcomes.tags(database, sweep.id)
    by_tag = tags and slices(table.scores, table.cases, tags, design)
    if not by_tag:
        return None
    for tag in by_tag["tags"]:
        tag["rows"] += [_UNTOLD] * len(scored.added)
    return {"metric": metric, **by_tag}


def _design(scored: Scores, metric: str, table: ScoreTable, tried: Tried) -> Design:
    """How rows are compared after what was tried before."""
    design = replace(scored.design(metric, table, tried.share), share_of_next=tried.share_of_next)
    if scored.chosen_baseline is not None:  # what earlier looks showed was against another one
        return design
    return replace(design, claimed=tried.claimed, known_best=tried.best)


def _compared(
    table: ScoreTable, design: Design, scale: Scale | None, seen: interim.View | None
) -> tuple[Comparison, Method | None]:
    """The figures of the end, or those that hold however often one looks, and how the intervals of these are made."""
    if seen is None:
        return compare(table.scores, design), None
    found = seen.look(table.scores, table.cases, design, scale)
    return found.compared, found.interval


def _looked_at(seen: interim.View, metrics: Mapping[str, MetricDocument], rows: int) -> list[str]:
    """What figures before the end rest on."""
    as_of = seen.as_of
    sentences = [
        f"{seen.because}: figures are as of {as_of['cases']:,} of {as_of['of']:,} cases, the first in its random "
        "order, and hold however often one looks"
    ]
    if names := [name for name, metric in metrics.items() if metric["interval"] == "asymptotic"]:
        sentences.append(
            f"{listed_names(names)} {'has' if len(names) == 1 else 'have'} no declared bounds (`scale`, `limits`): "
            f"intervals before the end need {limit_from(rows)} cases and even scores, else there are none"
        )
    return sentences


def _clustered(units: int | None) -> list[str]:
    """Warn that few clusters make intervals and tests unreliable; empty if cases are independent."""
    if units is None or units >= FEW:
        return []
    if units < FEWEST:
        return [f"the cases come from {units} clusters: too few for any test; expected {FEWEST} or more"]
    return [f"the cases come from {units} clusters, on which intervals and tests rest: fewer than {FEW} are few"]


def best_of(compared: Comparison, choices: Sequence[Mapping[str, str]], tried: Tried) -> BestDocument:
    """An entry of `best` in the JSON contract. tried: what was, over these cases."""
    lead, winner = compared.lead, compared.winner
    step = lead.next_step
    document: BestDocument = {
        "combination": None if compared.best is None else dict(choices[compared.best]),
        "clear": compared.clear,
        "candidates": [dict(choices[row]) for row in compared.candidates],
        "unranked": [dict(choices[row]) for row in compared.unranked],
        "cases": compared.cases,
        "winner": None
        if winner is None
        else {"mean": winner.mean, "ci": _listed(winner.ci), "shrunken": winner.shrunken},
        "rival": None if lead.rival is None else dict(choices[lead.rival]),
        "lead": lead.lead,
        "lead_ci": _listed(lead.ci),
        "p": lead.p,
        "n_pairs": lead.n_pairs,
        "cases_needed": None if step is None or step.cases is None else [step.cases, step.cases_if_half],
        "differ_at_most": None if step is None else step.differ_at_most,
        "because": lead.because,
        "tried": tried.n,
        "looks": tried.looks,
        "level": SIGNIFICANT * tried.share,
        "hangs_on": lead.hangs_on,
    }
    if lead.unseen is not None:
        document["unseen_one_in"] = lead.unseen
    return document


def _estimate(found: Estimate, bounds: Sequence[float] | None) -> MetricEstimate:
    document: MetricEstimate = {
        "n": found.n,
        "n_pairs": found.n_pairs,
        "mean": found.mean,
        "ci": _listed(found.ci),
        "delta": found.delta,
        "delta_ci": _listed(found.delta_ci),
        "p": found.p,
        "p_adjusted": found.p_adjusted,
        "effect": found.effect,
        "detectable": found.detectable,
        "detectable_fall": found.detectable_fall,
        "detectable_rise": found.detectable_rise,
        "ranks": _listed(found.ranks),
        "common_mean": found.common_mean,
        "bounds": _listed(bounds),
    }
    _add_missing(document, found)
    return document


def _add_missing(document: MetricEstimate, found: Estimate) -> None:
    """Add what missing cells, and differences too rare to show, do to an estimate; nothing where there are none."""
    if found.missing:
        document["missing"] = found.missing
    if found.mean_at_worst is not None:
        document["mean_at_worst"] = [*found.mean_at_worst]
    if found.delta_at_worst is not None:
        document["delta_at_worst"] = [*found.delta_at_worst]
    if found.p_at_worst is not None:
        document["p_at_worst"] = found.p_at_worst
    if found.pairs_missing:
        document["pairs_missing"] = found.pairs_missing
    if found.hangs_on is not None:
        document["hangs_on"] = found.hangs_on
    if found.unseen is not None:
        document["unseen_one_in"] = found.unseen


def _metric(measure: Measure, table: ScoreTable, interval: Method | None, without_expected: int) -> MetricDocument:
    document: MetricDocument = {
        "better": measure.better,
        "declared": measure.declared,
        "compare": measure.compare,
        "low": measure.low,
        "high": measure.high,
        "on_failure": table.failure_score,
        "failed": table.failed,
        "interval": interval,
    }
    if measure.figure is not None:
        document["figure"] = measure.figure
    if measure.passes is not None:
        document["passes"] = measure.passes
    if without_expected:
        document["without_expected"] = without_expected
    return document


def _listed(figures: Sequence[T] | None) -> list[T] | None:
    """Figures as JSON has them, where an interval is a list."""
    return None if figures is None else list(figures)


def _add_latencies(rows: Sequence[RowDocument], parts: Iterable[aggregates.Columns]) -> None:
    """Add the quantiles of (combination, seconds), which are read a part at a time."""
    seconds = [array("d") for _ in rows]
    for part in parts:
        found = np.column_stack(part)
        found = found[np.argsort(found[:, 0], kind="stable")]
        numbers, starts = np.unique(found[:, 0], return_index=True)
        for number, some in zip(numbers, np.split(found[:, 1], starts[1:]), strict=True):
            seconds[int(number)].frombytes(some.tobytes())
    for row, its in zip(rows, seconds, strict=True):
        if its:
            p50, p95 = np.percentile(its, [50, 95])
            row["latency_s"] = {"p50": float(p50), "p95": float(p95)}


def _uneven(matrix: MatrixDocument) -> list[str]:
    """Where means are not over the same cases, since some combinations failed in cases in which others did not."""
    found: dict[tuple[int, int, int], list[str]] = {}  # so that what is the same for several metrics is said once
    rows = [row for row in matrix["rows"] if is_ranked(row)]
    for metric in matrix["metrics"]:
        counts = [row["metrics"][metric]["n"] for row in rows]
        fewer = sum(0 < n < max(counts) for n in counts)
        if fewer:
            found.setdefault((fewer, min(n for n in counts if n), max(counts)), []).append(metric)
    sentences = []
    for (fewer, least, most), metrics in found.items():
        which = "1 combination is" if fewer == 1 else f"{fewer:,} combinations are"
        sentences.append(
            f"{which} scored by {listed_names(metrics)} in fewer cases than others (down to {least:,} of {most:,}), "
            "so means cover different cases: use the Δ column, which is paired"
        )
    return sentences


def _erased(erased: aggregates.Rows) -> str:
    """A sentence about cases that are not missing, but were erased."""
    who = sorted({str(by) for _, by, _ in erased})
    named = listed_names([str(case) for case, _, _ in erased[:5]]) + (", ..." if len(erased) > 5 else "")
    many = "1 case was" if len(erased) == 1 else f"{len(erased):,} cases were"
    return (
        f"{many} erased, with {'its' if len(erased) == 1 else 'their'} cells and scores: {named} (by {', '.join(who)})"
    )


def _warnings(database: Database, sweep: SweepRow, counts: Mapping[str, int], errors: aggregates.Rows) -> list[str]:
    sentences = []
    open_ = sum(count for status, count in counts.items() if status not in FINAL_CELLS)
    if open_:
        why = f" ({sweep.reason})" if sweep.reason else ""
        sentences.append(f"{open_:,} cells have no outcome yet: the sweep is {sweep.status}{why}")
    if erased := aggregates.erased_cases(database, sweep.id):
        sentences.append(_erased(erased))
    if undeclared := [metric.name for metric in queries.metric_rows(database, sweep.id) if not metric.declared]:
        sentences.append(
            f"which values of {', '.join(undeclared)} are better is not declared, so higher counts as better: declare "
            'it with @evaluator(better="higher") or @evaluator(better="lower"), then score again with `wtb score`'
        )
    for metric, count, reason in errors:
        sentences.append(f"{plural(count, 'score')} of {metric} failed, such as: {reason}")
    if changed := aggregates.drifted_tools(database, sweep):
        sentences.append(f"changed tools: servers changed {', '.join(changed)} while the sweep ran")
    for metric, found in models_of_judges(database, sweep).items():
        if len(found) > 1:
            sentences.append(f"changed models: {metric} was judged by {' and '.join(found)}")
    return sentences


def _mixed(counted: aggregates.Rows) -> list[str]:
    """Warn of variants of which accepted runs come from more than one version of the code."""
    mixed = [f"{node}={variant}" for node, variant, *_, is_mixed in counted if is_mixed]
    return [f"mixed code: results of {', '.join(mixed)} come from more than one version of it"] if mixed else []
