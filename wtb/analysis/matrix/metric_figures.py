"""What each metric says of the rows of a matrix: estimates, comparisons, the best, and what to be warned of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from wtb.analysis import interim
from wtb.analysis.matrix import caveats
from wtb.analysis.matrix.class_counts import add_class_counts, few_of_class
from wtb.analysis.matrix.estimates import best_of, estimate_document, metric_document
from wtb.analysis.matrix.facts import SweepFacts
from wtb.analysis.matrix.hanging import uneven_differences, unseen_claims
from wtb.analysis.matrix.slices import slices
from wtb.analysis.matrix.within_margin import Compared
from wtb.analysis.scores import Scores, ScoreTable
from wtb.analysis.search_history import Tried
from wtb.analysis.search_history import sentences as looks_in_words
from wtb.analysis.statistics import Comparison, Design, compare
from wtb.analysis.statistics.sequential.running import Method
from wtb.core.scoring.scales import Scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import (
        BestDocument,
        MatrixFigures,
        MetricDocument,
        RowDocument,
        SlicesDocument,
        TagRow,
    )

_UNTOLD: TagRow = {"mean": None, "n_pairs": 0, "delta": None, "delta_ci": None, "p": None, "p_adjusted": None}


class _MetricFigures(NamedTuple):
    """What one metric says of the rows. They have their estimates already."""

    tries: Tried
    compared: Compared
    best: BestDocument
    document: MetricDocument


def figures_of(facts: SweepFacts, rows: list[RowDocument]) -> tuple[MatrixFigures, list[str], dict[str, Compared]]:
    """Return what rests on scores, which it adds to the rows, what to be warned of, and rows as they were compared."""
    scored, primary = facts.scored, facts.scored.primary
    by_metric = {name: _add_metric(facts, rows, name) for name in scored.measures}
    first = by_metric.get(primary or "")
    units = None if first is None else first.compared.table.count_units()
    _correct(facts, rows, by_metric)
    figures: MatrixFigures = {
        "rows": rows,
        "primary": primary,
        "primary_named": primary is not None and primary == facts.sweep.spec.get("primary"),
        "best": {name: figures.best for name, figures in by_metric.items()},
        "metrics": {name: figures.document for name, figures in by_metric.items()},
        "clusters": units,
        "slices": None if primary is None or first is None or facts.seen else _sliced(facts, primary, first.compared),
        "noise": facts.noise,
    }
    warnings = _warnings(facts, figures, by_metric)
    return figures, warnings, {name: figures.compared for name, figures in by_metric.items()}


def _add_metric(facts: SweepFacts, rows: Sequence[RowDocument], name: str) -> _MetricFigures:
    """Compare the rows by a metric, and add its estimates to them."""
    scored, added, stopped, seen = facts.scored, facts.added, facts.stopped, facts.seen
    choices, measure = scored.choices[: scored.planned], scored.measures[name]
    table = stopped.blanked(scored.planned_table(name))
    tries = facts.ledger.tries(name)
    design, scale = _design(scored, name, table, tries), interim.bounds(name, measure, facts.sweep.spec)
    compared, interval = _compared(table, design, scale, seen)
    bounds = table.bounds(measure, scored.cells(name)) if facts.has_ended else [None] * len(choices)
    estimates = stopped.placed_in([*compared.rows, *added.estimates(name)], name)
    for row, estimate, ends in zip(rows, estimates, [*bounds, *([None] * added.count)], strict=True):
        row["metrics"][name] = estimate_document(estimate, None if row.get("stopped") else ends)
    document = metric_document(measure, table, interval, scored.without_expected.get(name, 0))
    add_class_counts(name, table, rows, document)
    best = best_of(compared, choices, replace(tries, n=added.tries(name) or tries.n))
    standings = partial(facts.ledger.standings, name)
    return _MetricFigures(tries, Compared(table, design, compared, scale, seen, standings), best, document)


def _correct(facts: SweepFacts, rows: list[RowDocument], by_metric: Mapping[str, _MetricFigures]) -> None:
    """Correct the p of metrics that do not decide, over all of them and all rows."""
    secondary_metrics = [*by_metric][1:]
    level_shares = {name: by_metric[name].tries.share for name in secondary_metrics}
    claimed = {name: by_metric[name].compared.design.claimed for name in secondary_metrics}
    caveats.correct_exploratory(rows[: facts.scored.planned], level_shares, claimed)
    for number, shares in facts.added.shares(secondary_metrics):
        caveats.correct_exploratory([rows[number]], shares)


def _warnings(facts: SweepFacts, figures: MatrixFigures, by_metric: Mapping[str, _MetricFigures]) -> list[str]:
    """Return what bears on intervals and tests."""
    rows, metrics, seen = figures["rows"], figures["metrics"], facts.seen
    skewed: dict[int, list[str]] = {}
    for name, of_metric in by_metric.items():
        if of_metric.compared.comparison.skewed is not None:
            skewed.setdefault(of_metric.compared.comparison.skewed, []).append(name)
    unevens = {name: of_metric.compared.comparison.uneven for name, of_metric in by_metric.items()}
    few = caveats.few_clusters(figures["clusters"])
    return [
        *caveats.uneven_scores(skewed),
        *(few if seen is None else caveats.looked_at(seen, metrics, facts.scored.planned)),
        *few_of_class(metrics.values()),
        *looks_in_words({name: of_metric.tries for name, of_metric in by_metric.items()}),
        *facts.added.sentences(),
        *facts.stopped.sentences(),
        *unseen_claims(rows, metrics),
        *uneven_differences(rows, unevens, skewed.values()),
    ]


def _sliced(facts: SweepFacts, metric: str, compared: Compared) -> SlicesDocument | None:
    """By tag, of rows that were planned; None where tags tell no cases apart, or figures are no means over cases."""
    if compared.design.figure is not None or not facts.tags:
        return None
    by_tag = slices(compared.table.scores, compared.table.cases, facts.tags, compared.design)
    if not by_tag:
        return None
    for tag in by_tag["tags"]:
        tag["rows"] += [_UNTOLD] * len(facts.scored.added)
    return {"metric": metric, **by_tag}


def _design(scored: Scores, metric: str, table: ScoreTable, tries: Tried) -> Design:
    """How rows are compared after what was tried before."""
    design = replace(scored.design(metric, table, tries.share), share_of_next=tries.share_of_next)
    if scored.chosen_baseline is not None:  # what earlier looks showed was against another one
        return design
    return replace(design, claimed=tries.claimed, known_best=tries.best)


def _compared(
    table: ScoreTable, design: Design, scale: Scale | None, seen: interim.View | None
) -> tuple[Comparison, Method | None]:
    """The figures of the end, or those that hold however often one looks, and how the intervals of these are made."""
    if seen is None:
        return compare(table.scores, design), None
    look = seen.look(table.scores, table.cases, design, scale)
    return look.compared, look.interval
