"""Figures of each metric for the rows of a matrix: estimates, comparisons, the best, and warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wtb.analysis import interim
from wtb.analysis.interim import View
from wtb.analysis.matrix import caveats
from wtb.analysis.matrix.caveats import uneven_differences, unseen_claims
from wtb.analysis.matrix.estimates import best_of, estimate_document, metric_document
from wtb.analysis.matrix.facts import SweepFacts
from wtb.analysis.matrix.selection import allowed_rows, wanted_figure
from wtb.analysis.scores import Scores, ScoreTable
from wtb.analysis.search_history import Tried
from wtb.analysis.search_history import sentences as looks_in_words
from wtb.analysis.statistics import Comparison, Design, compare
from wtb.analysis.statistics.claims import Tests, corrected, test_columns, with_worst
from wtb.analysis.statistics.class_intervals import ClassCount, counted
from wtb.analysis.statistics.good_enough import NEEDED_WITHOUT_SCALE, Standing, lacks_scale, standings
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.paired import Tested, cleaned, from_baseline, means, paired_tests
from wtb.analysis.statistics.row_figures import FigureRows
from wtb.analysis.statistics.running import Method
from wtb.core.frozen import frozen
from wtb.core.scoring.measure import OfClass, class_sentence
from wtb.core.scoring.scores import Scale

if TYPE_CHECKING:
    from wtb.core.documents.matrix import (
        BestDocument,
        ClassesDocument,
        MatrixDocument,
        MatrixFigures,
        MetricDocument,
        RowDocument,
        SlicesDocument,
        TagRow,
        TagSlices,
        WithinDocument,
    )
    from wtb.core.tree.stored_spec import Best


def add_class_counts(metric: str, table: ScoreTable, rows: Sequence[RowDocument], document: MetricDocument) -> None:
    """Add to a metric and its rows how many cases are of each class, and on how many of them intervals depend.

    Metrics that are not a figure over all cells of a row stay as they are.
    """
    if table.figure is None:
        return
    counts = []
    for row, cells in zip(rows, table.figure.rows, strict=False):  # rows that were added have none
        if len(cells.truth):
            counts.append(counted(table.figure.figure, cells, table.units))
            row["metrics"][metric]["class_cases"] = counts[-1].units
    if counts:
        document["classes"] = _classes(metric, table, table.figure, counts)


def _classes(metric: str, table: ScoreTable, figure: FigureRows, counts: Sequence[ClassCount]) -> ClassesDocument:
    cases = np.unique(np.concatenate([np.column_stack([row.truth, row.column]) for row in figure.rows]), axis=0)
    labels, sizes = np.unique(cases[:, 0], return_counts=True)
    by_size = sorted(zip(sizes.tolist(), labels.tolist(), strict=True))
    return {
        "cases": {figure.names.get(label, str(label)): size for size, label in by_size},
        "fewest": min(counts, key=_units).units,
        "enough": all(count.is_enough for count in counts),
        "sentence": _sentence(metric, figure, counts, "cases" if table.units is None else "clusters"),
    }


def few_of_class(metrics: Iterable[MetricDocument]) -> list[str]:
    """Return sentences on metrics whose rows have no interval because too few cases are of a class."""
    return [
        metric["classes"]["sentence"] for metric in metrics if "classes" in metric and not metric["classes"]["enough"]
    ]


def _units(count: ClassCount) -> int:
    return count.units


def _sentence(metric: str, rows: FigureRows, counts: Sequence[ClassCount], unit: str) -> str:
    least, largest = min(counts, key=_units), max(counts, key=_units)
    name = None if least.label is None else rows.names.get(least.label, str(least.label))
    return class_sentence(metric, rows.figure, OfClass(least.units, largest.units, name, least.is_found, unit))


MAX_TAGS = 12  # tags, those with most cases
FEWEST = 5  # cases that a tag needs to be reported


def slices(
    scores: Floats, cases: NDArray[np.int64], tags: Mapping[int, Sequence[str]], design: Design
) -> TagSlices | None:
    """Return each tag's cases by themselves, as `slices` of the JSON contract; None if no tag separates cases.

    Args:
        scores: Combinations x cases, averaged over repeats, NaN without a score.
        cases: The number of the case of each column.
        tags: Case number -> its tags.
        design: How rows are compared.
    """
    columns: dict[str, list[int]] = {}
    for column, case in enumerate(cases.tolist()):
        for tag in dict.fromkeys(tags.get(case, ())):
            columns.setdefault(tag, []).append(column)
    # A tag of all cases is the matrix itself.
    sliced = {tag: some for tag, some in columns.items() if FEWEST <= len(some) < len(cases)}
    if not sliced:
        return None
    largest = sorted(sliced, key=lambda tag: (-len(sliced[tag]), tag))[:MAX_TAGS]
    scores = cleaned(scores)
    rates = design.pairs_of_rates(design.rates(scores))
    means_by_tag: list[tuple[str, int, Floats, Sequence[Tested]]] = []
    tests: list[Tests] = []
    for tag in largest:
        some = scores[:, sliced[tag]]
        differences, units = from_baseline(some, design.baseline), design.of_cases(sliced[tag]).units
        tested = paired_tests(differences, seed=design.seed, rates=rates, compare=design.by, units=units)
        tests.append(_tests(tested, some, sliced[tag], design))
        means_by_tag.append((tag, len(sliced[tag]), means(some), tested))
    # One family over all tags and rows: somebody looks for the tag with the largest difference.
    p, at_worst, counts = (np.concatenate(parts) for parts in zip(*tests, strict=True))
    lasting, is_hanging = corrected(p, at_worst, design.share)
    adjusted = lasting.reshape(len(means_by_tag), -1)
    hanging = np.where(is_hanging, counts, 0).reshape(adjusted.shape)
    return {
        "tags": [
            {"tag": tag, "cases": count, "rows": list(map(_row, middle.tolist(), tested, row.tolist(), on.tolist()))}
            for (tag, count, middle, tested), row, on in zip(means_by_tag, adjusted, hanging, strict=True)
        ],
        "left_out": len(columns) - len(largest),
    }


def _tests(tested: Sequence[Tested], scores: Floats, columns: Sequence[int], design: Design) -> Tests:
    """Return the tests of the rows over some cases, with missing cells at their worst."""
    missing = None if design.missing is None else design.missing.part(range(len(scores)), np.array(columns))
    pairs = replace(design.of_cases(columns), missing=missing).pairs(scores)
    return with_worst(pairs, design.baseline, *test_columns(tested))


def _row(mean: float, tested: Tested, p: float, hangs_on: int) -> TagRow:
    row: TagRow = {
        "mean": None if math.isnan(mean) else mean,
        "n_pairs": tested.n,
        "delta": tested.delta,
        "delta_ci": None if tested.ci is None else list(tested.ci),
        "p": tested.p,
        "p_adjusted": None if math.isnan(p) else p,
    }
    if hangs_on:
        row["hangs_on"] = hangs_on
    return row


@frozen
class Compared:
    """The rows under one metric, with their comparison.

    Attributes:
        table: Their scores.
        design: How they were compared.
        comparison: The results.
        scale: The bounds of scores that are used before the end.
        seen: The part that may be used before the end; None at the end.
        known_standings: Returns the standings that an earlier look showed for a margin.
    """

    table: ScoreTable
    design: Design
    comparison: Comparison
    scale: Scale | None
    seen: View | None
    known_standings: Callable[[float], frozenset[tuple[int, bool]]]

    @property
    def lacks_scale(self) -> bool:
        """True if the cases are too few to show that any row is within a margin, because there is no scale."""
        scores = self.table.scores
        return len(scores) > 1 and lacks_scale(scores, self.design, range(len(scores)))

    def standings(self, margin: float, compared_rows: Sequence[int]) -> Sequence[Standing]:
        """Return how far each row is behind the best of some. `margin` is the loss that does not matter."""
        scores = self.table.scores
        if self.seen is not None:
            cases = self.table.cases
            look = self.seen.look(scores, cases, self.design, self.scale, margin=margin, compared_rows=compared_rows)
            return look.standings
        design = replace(self.design, known_standings=self.known_standings(margin))
        return standings(scores, design, margin, could_be_best=self.comparison.candidates, compared_rows=compared_rows)


def add_standings(matrix: MatrixDocument, best: Best, margins: Mapping[str, float], by: Mapping[str, Compared]) -> None:
    """Add to each row whether it is within the margins of the best row that `best` of the sweep file allows.

    Args:
        matrix: The matrix, which is changed.
        best: The `best` of the sweep file; empty without one.
        margins: Metric -> the loss that does not matter.
        by: Metric -> the rows as they were compared.
    """
    about = wanted_figure(matrix, best)[1]
    for metric, margin in margins.items():
        # `subject_to` restricts the choice by one metric only; by any other, all rows compete.
        allowed, _ = allowed_rows(matrix, best if metric == about else {})
        planned = [row for row in allowed if row < len(by[metric].table.scores)]
        for row, standing in zip(matrix["rows"], by[metric].standings(margin, planned), strict=False):
            row["metrics"][metric]["within"] = within_document(standing, margin)


def within_document(standing: Standing, margin: float) -> WithinDocument:
    """Return whether a row is within a margin of another one, as `within` of the JSON contract."""
    behind = None if standing.behind is None else [*standing.behind]
    document: WithinDocument = {"margin": margin, "shown": standing.within, "behind": behind}
    if standing.hangs_on:
        document["hangs_on"] = standing.hangs_on
    return document


def lack_scales(margins: Mapping[str, float], by: Mapping[str, Compared]) -> list[str]:
    """Return sentences on metrics without a scale that have too few cases to show a row within the margin.

    Args:
        margins: Metric -> the loss that does not matter.
        by: Metric -> the rows as they were compared.
    """
    return [
        f"{metric} has no declared `scale`: that a combination is within {margin:g} of the best takes at least "
        f"{NEEDED_WITHOUT_SCALE} {'cases' if by[metric].table.units is None else 'clusters'} that all of them have"
        for metric, margin in margins.items()
        if by[metric].seen is None and by[metric].lacks_scale
    ]


_UNTOLD: TagRow = {"mean": None, "n_pairs": 0, "delta": None, "delta_ci": None, "p": None, "p_adjusted": None}


class _MetricFigures(NamedTuple):
    """Figures of one metric for the rows, which already have their estimates."""

    tries: Tried
    compared: Compared
    best: BestDocument
    document: MetricDocument


def figures_of(facts: SweepFacts, rows: list[RowDocument]) -> tuple[MatrixFigures, list[str], dict[str, Compared]]:
    """Add the figures of scores to the rows; return them with their warnings and the comparisons by metric."""
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
    """Compare the rows by a metric and add the estimates to them."""
    scored, added, stopped, seen = facts.scored, facts.added, facts.stopped, facts.seen
    choices, measure = scored.choices[: scored.planned], scored.measures[name]
    table = stopped.blanked(scored.planned_table(name))
    tries = facts.ledger.tries(name)
    design, scale = _design(scored, name, table, tries), interim.bounds(name, measure, facts.sweep.spec)
    compared, interval = _compared(table, design, scale, seen)
    # Before the end every open cell is missing, so the bounds would be those of the scale.
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
    """Correct the p-values of exploratory metrics over all of them and all rows."""
    secondary_metrics = [*by_metric][1:]
    level_shares = {name: by_metric[name].tries.share for name in secondary_metrics}
    claimed = {name: by_metric[name].compared.design.claimed for name in secondary_metrics}
    caveats.correct_exploratory(rows[: facts.scored.planned], level_shares, claimed)
    # An added row was suggested by results, so it is corrected by itself and costs the planned rows nothing.
    for number, shares in facts.added.shares(secondary_metrics):
        caveats.correct_exploratory([rows[number]], shares)


def _warnings(facts: SweepFacts, figures: MatrixFigures, by_metric: Mapping[str, _MetricFigures]) -> list[str]:
    """Return the warnings on intervals and tests."""
    rows, metrics, seen = figures["rows"], figures["metrics"], facts.seen
    skewed: dict[int, list[str]] = {}
    for name, of_metric in by_metric.items():
        if (cases := of_metric.compared.comparison.skewed) is not None:
            skewed.setdefault(cases, []).append(name)
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
    """Return planned rows by tag; None if tags separate no cases, or figures are not means over cases."""
    if compared.design.figure is not None or not facts.tags:
        return None
    by_tag = slices(compared.table.scores, compared.table.cases, facts.tags, compared.design)
    if not by_tag:
        return None
    for tag in by_tag["tags"]:
        tag["rows"] += [_UNTOLD] * len(facts.scored.added)
    return {"metric": metric, **by_tag}


def _design(scored: Scores, metric: str, table: ScoreTable, tries: Tried) -> Design:
    """Return how rows are compared, given the earlier tries."""
    design = replace(scored.design(metric, table, tries.share), share_of_next=tries.share_of_next)
    if scored.chosen_baseline is not None:  # what earlier looks showed was against another one
        return design
    return replace(design, claimed=tries.claimed, known_best=tries.best)


def _compared(
    table: ScoreTable, design: Design, scale: Scale | None, seen: interim.View | None
) -> tuple[Comparison, Method | None]:
    """Return the figures of the end, or those valid at any time with the method of their intervals."""
    if seen is None:
        return compare(table.scores, design), None
    look = seen.look(table.scores, table.cases, design, scale)
    return look.compared, look.interval
