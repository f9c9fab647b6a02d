"""Comparison of two sweeps: what was changed, and which results got worse or better, paired by case.

Cells are paired by combination and case. Repeats are averaged within the case. Cases that were changed or that only one
of the sweeps has are left out, and listed as such.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from wtb.analysis.comparison import changes
from wtb.analysis.comparison.pairing import (
    Outcomes,
    Pairs,
    Scores,
    failing,
    match,
    partings,
    read_outcomes,
    read_scores,
)
from wtb.analysis.comparison.reasons import Facts, chance, sentences
from wtb.analysis.comparison.regressions import Answer, Finding, Pool, Question, answer, of_sweep, pools
from wtb.analysis.comparison.verdicts import CANNOT_TELL, NOT_WORSE, SAME, UNCLEAR, WORSE, overall
from wtb.analysis.interim import why_stopped
from wtb.analysis.judge_check import models_of_judges
from wtb.analysis.statistics import margins
from wtb.analysis.statistics.claims import SIGNIFICANT, MissingCells, span_of
from wtb.analysis.statistics.claims import Pairs as TableOfPairs
from wtb.analysis.statistics.intervals import Units
from wtb.analysis.statistics.margins import BeforeAndAfter, pooled
from wtb.authoring.evaluation.evaluators import beyond_scale
from wtb.core.errors import InputError, did_you_mean
from wtb.core.frozen import frozen
from wtb.core.provider_faults import is_waiting
from wtb.core.scoring.failure_scores import MOST_LOST, hangs_on, unseen
from wtb.core.scoring.measure import Measure
from wtb.planning.metric_names import primary_of
from wtb.store.database import Database
from wtb.store.read import aggregates, baselines, queries
from wtb.store.tables.sweeps import SweepRow

if TYPE_CHECKING:
    from wtb.core.documents.comparison import (
        CellFigures,
        ChangesDocument,
        ComparedCell,
        ComparedPool,
        ComparedRow,
        ComparedSizes,
        ComparisonDocument,
        ContrastFigures,
        MissingPairs,
        NoiseFloorDocument,
        OutcomeFigures,
    )
    from wtb.core.documents.matrix import Verdict
    from wtb.core.tree.stored_spec import StoredSpec

VERSION: Final = 2
# Each of these reads two lines of checkpoints, so only the worst cells are looked into.
LOOKED_INTO = 20  # cells of which the first node that differs is looked for
CELLS = ""  # the question whether cells fail, beside those by metrics, all of which have names


def compare_sweeps(
    database: Database,
    before: SweepRow,
    after: SweepRow,
    margin: Mapping[str, float] | None = None,
    *,
    looked_into: int = LOOKED_INTO,
    level: float = SIGNIFICANT,
) -> ComparisonDocument:
    """Compare two sweeps.

    Args:
        database: Where both are.
        before: The row of the earlier one, as `find_sweep` gives it.
        after: The row of the later one.
        margin: Metric -> the loss that would matter, in place of the later sweep's own.
        looked_into: How many cells, the worst first, have the node at which they part.
        level: Below which corrected p a loss is worse; smaller if the later sweep is one of many nights.

    Raises:
        InputError: A case is of two clusters.
    """
    requested = dict(margin or {})
    own = {name: loss for name, loss in (after.spec.get("margin") or {}).items() if name not in requested}
    pairs = match(database, before, after)
    metrics = _metrics(database, before, after)
    failed, changed = read_outcomes(database, before, after, pairs), _changed(database, before, after, pairs, metrics)
    scored = read_scores(database, before, after, pairs, metrics.common, failed.lost)
    floor = baselines.noise_floor(database, before.id)
    primary = primary_of(after.spec, metrics.common)
    sides = _Sides(
        failed, scored, {**own, **requested}, primary, floor, pools(pairs.choices, changed["code"]), pairs.units
    )
    answers = sides.answers(int(after.spec.get("seed", 0)), pairs, level)
    rows = [_row(sides, answers, number, choice) for number, choice in enumerate(pairs.choices)]
    pooled_rows = [_pool(sides, answers, number, pairs) for number in range(len(sides.pools))]
    sizes = _sizes(pairs)
    cells = _cells(pairs, failed, scored, rows)
    first = cells[:looked_into]
    for cell, node in zip(first, partings(database, [cell["executions"] for cell in first]), strict=True):
        cell["diverged"] = node
    facts = Facts(
        rows=rows,
        pools=pooled_rows,
        metrics={name: measure.better for name, measure in metrics.common.items()},
        primary=primary,
        cells=failed.compared,
        later=sizes["after"],
        unpaired=failed.unpaired,
        unscored=sum(int(scores.lost.sum()) for scores in scored),
        missing=failed.missing,
        lost_shares=failed.lost_shares,
        changed=changed,
        stopped=[
            f"{why} ({side})"
            for side, sweep in (("the earlier one", before), ("the later one", after))
            if not is_waiting(sweep.reason) and (why := why_stopped(sweep))
        ],
        unknown=[name for name in {**own, **requested} if name not in metrics.common],
    )
    return {
        "version": VERSION,
        "before": before.heading,
        "after": after.heading,
        "changed": changed,
        "compared": {
            "combinations": len(pairs.choices),
            "cases": len(pairs.ids),
            "cells": failed.compared,
            "of": sizes,
        },
        "primary": primary,
        "margin": {"given": requested, "of_later": own},
        "noise_floor": floor,
        "failing": {"still": failed.still_failing, "unpaired": failed.unpaired},
        "rows": rows,
        "pools": pooled_rows,
        "cells": cells,
        "verdict": _verdict(sides, answers, facts),
        "because": sentences(facts),
    }


def check_margin(database: Database, before: SweepRow, after: SweepRow, margin: Mapping[str, float]) -> None:
    """Reject margins for unknown metrics and margins beyond the scale of a metric.

    Raises:
        InputError: Neither sweep has such a metric, or the margin exceeds its scale.
    """
    measures = queries.measures(database, before.id) | queries.measures(database, after.id)
    problems = []
    for metric, loss in margin.items():
        if metric not in measures:
            scored = did_you_mean(metric, measures) or f"; scored are {', '.join(measures) or 'no metrics'}"
            problems.append(f"margin: neither sweep is scored by {metric!r}{scored}")
        elif wrong := beyond_scale(metric, loss, measures[metric]):
            problems.append(f"margin: {wrong}")
    if problems:
        raise InputError(*problems)


def _sizes(pairs: Pairs) -> ComparedSizes:
    """Return how many cells each sweep has, not counting repeats."""
    combinations, cases = pairs.combinations, pairs.cases
    return {
        "before": (combinations["common"] + combinations["removed"]) * (cases["common"] + len(cases["removed"])),
        "after": (combinations["common"] + combinations["added"]) * (cases["common"] + len(cases["added"])),
    }


def _changed(database: Database, before: SweepRow, after: SweepRow, pairs: Pairs, metrics: _Metrics) -> ChangesDocument:
    graphs = [queries.workflow_graph(database, sweep.workflow_id) for sweep in (before, after)]
    renamed = changes.renamed_variants(before.spec, after.spec)
    old_fingerprints = changes.with_names(before.fingerprints, renamed)
    codes = changes.code_with_names(before.spec.get("code"), renamed), after.spec.get("code")
    is_text = {(node, name) for node, names in renamed.items() for name in names.values()}
    changed: ChangesDocument = {
        "code": [
            change
            for change in changes.code_changes(old_fingerprints, after.fingerprints, codes)
            # A variant that changed only because a file's text did is reported with the file.
            if (change["node"], change["variant"]) not in is_text or change.get("causes") != [changes.PARAMETERS]
        ],
        "variants": changes.variant_changes(old_fingerprints, after.fingerprints),
        "combinations": pairs.combinations,
        "cases": pairs.cases,
        "metrics": {"common": len(metrics.common), "added": metrics.added, "removed": metrics.removed},
        "settings": changes.setting_changes(
            changes.without_texts(_spec(database, before), renamed),
            changes.without_texts(_spec(database, after)),
        ),
        "graph": changes.graph_changed(*graphs),
    }
    if files := changes.file_changes(before.spec, after.spec):
        changed["files"] = files
    return changed


def _spec(database: Database, sweep: SweepRow) -> StoredSpec:
    spec = changes.with_called_tools(sweep.spec, aggregates.called_tools(database, sweep))
    return changes.with_models(spec, models_of_judges(database, sweep))


class _Metrics(NamedTuple):
    """Metrics of two sweeps: those of both with how they are read, and the names of those that only one has."""

    common: Mapping[str, Measure]
    added: list[str]
    removed: list[str]


def _metrics(database: Database, before: SweepRow, after: SweepRow) -> _Metrics:
    old, new = (queries.measures(database, sweep.id) for sweep in (before, after))
    return _Metrics(
        {name: measure for name, measure in new.items() if name in old},
        [name for name in new if name not in old],
        [name for name in old if name not in new],
    )


@frozen
class _Sides:
    """Results of two sweeps, and the settings that compare them."""

    failed: Outcomes
    scored: Sequence[Scores]
    margin: Mapping[str, float]
    primary: str | None
    floor: NoiseFloorDocument | None
    pools: Sequence[Pool]
    units: Units = None

    @cached_property
    def questions(self) -> dict[str, Question]:
        """Questions by metric; CELLS is the question whether cells fail."""
        before, after = failing(self.failed, self.scored)
        gains = np.asarray(before - after)
        rates = bool(np.isin(gains[np.isfinite(gains)], (-1, 0, 1)).all())
        counted = any(scores.metric == self.primary and scores.counts_failures for scores in self.scored)
        both = np.vstack([-before, -after])
        # Only cells lost to a provider are missing for this question: failing is the outcome here.
        sides = BeforeAndAfter(TableOfPairs(both, MissingCells.of(both, "provider"), (-1.0, 0.0), units=self.units))
        questions_by_metric = {
            CELLS: Question(gains, rates, repeatable=self._is_repeatable(CELLS), only_worse=counted, sides=sides)
        }
        for scores in self.scored:
            questions_by_metric[scores.metric] = Question(
                scores.gains,
                scores.are_rates,
                scores.measure.compare,
                self.margin.get(scores.metric),
                decides=scores.metric == self.primary or scores.metric in self.margin,
                repeatable=self._is_repeatable(scores.metric),
                were=scores.were,
                figures=scores.figures and scores.figures.times(1 if scores.measure.better == "higher" else -1),
                sides=scores.sides,
                span=span_of(scores.measure.scale),
            )
        return questions_by_metric

    def _is_repeatable(self, metric: str) -> bool:
        """Return whether repeats of the earlier sweep had the same results in every case."""
        if self.floor is None:
            return False
        floor = self.floor["cells"] if metric == CELLS else self.floor["metrics"].get(metric)
        return floor is not None and floor["deterministic"]

    def answers(self, seed: int, pairs: Pairs, level: float) -> dict[str, Answer]:
        return answer(self.questions, [pool.rows for pool in self.pools], seed=seed, units=pairs.units, level=level)


def _verdict(sides: _Sides, answers: Mapping[str, Answer], facts: Facts) -> Verdict:
    verdict = of_sweep(answers, sides.questions)
    # With many cells lost to a provider, those that remain may be the easy ones; a shown loss still counts.
    if max(facts.lost_shares) > MOST_LOST and verdict != WORSE:
        return UNCLEAR
    # Tests assume a number of cases that no result decided; two equal sweeps need no test.
    if facts.stopped and verdict != SAME:
        return CANNOT_TELL
    lost = facts.changed["metrics"]["removed"] and not facts.metrics
    lost = lost or (sides.primary is not None and sides.primary not in facts.metrics)
    untold = any(row["verdict"] == CANNOT_TELL for row in facts.rows)
    if verdict != WORSE and (not facts.cells or facts.missing[1] or untold or lost):
        return CANNOT_TELL
    return verdict


def _row(sides: _Sides, answers: Mapping[str, Answer], number: int, choice: Mapping[str, str]) -> ComparedRow:
    cells, metrics = _part(sides, {name: answer.rows[number] for name, answer in answers.items()}, [number])
    is_lost = any(
        metrics[scores.metric]["decides"] and not metrics[scores.metric]["n_pairs"] and scores.were[number]
        for scores in sides.scored
    )
    return {
        "combination": dict(choice),
        "verdict": _of_part(cells, metrics, is_lost=is_lost, succeeded=sides.failed.succeeded(number)),
        "cells": cells,
        "metrics": metrics,
    }


def _of_part(
    cells: OutcomeFigures, metrics: Mapping[str, ContrastFigures], *, is_lost: bool, succeeded: bool
) -> Verdict:
    """Return the verdict on one combination from its deciding metrics.

    Args:
        cells: The figures on failing cells.
        metrics: The figures of each metric.
        is_lost: True if a deciding metric can no longer be compared.
        succeeded: True if any cell succeeded in both sweeps.
    """
    verdict = _of_deciding(cells, metrics)
    if verdict == WORSE:
        return verdict
    compared = any(figures["verdict"] != CANNOT_TELL for figures in metrics.values())
    if is_lost or (not compared and not cells["fixed"] and (metrics or not succeeded)):
        return CANNOT_TELL
    return verdict


def _of_deciding(cells: OutcomeFigures, metrics: Mapping[str, ContrastFigures]) -> Verdict:
    """Return the verdict of the deciding metrics that can be compared, and of failing cells."""
    deciding = [figures["verdict"] for figures in metrics.values() if figures["decides"]]
    return overall([cells["verdict"], *(verdict for verdict in deciding if verdict != CANNOT_TELL)])


def _pool(sides: _Sides, answers: Mapping[str, Answer], number: int, pairs: Pairs) -> ComparedPool:
    pool = sides.pools[number]
    cells, metrics = _part(sides, {name: answer.pools[number] for name, answer in answers.items()}, pool.rows)
    return {
        "what": pool.what,
        "nodes": list(pool.nodes),
        "variant": pool.variant,
        "combinations": [dict(pairs.choices[row]) for row in pool.rows],
        "verdict": _of_deciding(cells, metrics),
        "cells": cells,
        "metrics": metrics,
    }


def _part(
    sides: _Sides, findings: Mapping[str, Finding], rows: Sequence[int]
) -> tuple[OutcomeFigures, dict[str, ContrastFigures]]:
    """Return the figures of a row or pool: of its failing cells, and by metric."""
    metrics = {scores.metric: _figures(sides, scores, findings[scores.metric], rows) for scores in sides.scored}
    return _outcome_figures(sides, findings[CELLS], rows), metrics


def _figures(sides: _Sides, scores: Scores, finding: Finding, rows: Sequence[int]) -> ContrastFigures:
    """Return the figures of a row or pool for one metric.

    Differences are later minus earlier; `gain_low` refers to the gain, which is positive if the later sweep is better.
    """
    contrast, sign = finding.contrast, 1.0 if scores.measure.better == "higher" else -1.0
    middle = np.median if scores.is_typical else np.mean
    # Means before and after must be over the same cases, or their difference would not be `delta`.
    both = np.isfinite(scores.differences)
    old, new = (pooled(np.where(both, table, np.nan), rows) for table in (scores.before, scores.after))
    ends = None if contrast.ci is None else sorted(sign * end for end in contrast.ci)
    return {
        "n_pairs": contrast.n,
        "n_differ": contrast.differ,
        "before": float(middle(old[np.isfinite(old)])) if contrast.n else None,
        "after": float(middle(new[np.isfinite(new)])) if contrast.n else None,
        "delta": None if contrast.delta is None else sign * contrast.delta,
        "delta_ci": ends,
        "gain_low": finding.low,
        "p_worse": contrast.worse,
        "p_better": contrast.better,
        "margin": sides.margin.get(scores.metric),
        "margin_shown": contrast.margin,
        "cases_needed": finding.cases_needed,
        "decides": sides.questions[scores.metric].decides,
        "verdict": finding.verdict,
        "because": _because(finding, sides.questions[scores.metric]),
        **_missing(finding),
    }


def _missing(finding: Finding) -> MissingPairs:
    """Return how many cells are missing on either side, and on how many the verdict depends; empty if none."""
    document: MissingPairs = {}
    if finding.contrast.missing:
        document["missing"] = finding.contrast.missing
    if finding.hangs_on:
        document["hangs_on"] = finding.hangs_on
    if finding.unseen:
        document["unseen_one_in"] = finding.unseen
    if finding.is_uneven:
        document["uneven"] = True
    return document


def _outcome_figures(sides: _Sides, finding: Finding, rows: Sequence[int]) -> OutcomeFigures:
    """Return how many cells of these rows newly fail or are fixed, and whether that could be chance."""
    failed = sides.failed
    part = list(rows)
    newly = int((failed.after[part] > failed.before[part]).sum())
    fixed = int((failed.after[part] < failed.before[part]).sum())
    for scores in sides.scored:
        newly += int(scores.lost[part].sum())
        fixed += int(scores.regained[part].sum())
    verdict: Verdict = SAME if finding.verdict == CANNOT_TELL else finding.verdict
    question = sides.questions[CELLS]
    # The primary metric counts failures as scores already, so an unclear answer here would be the same doubt twice.
    if question.only_worse and verdict == UNCLEAR:
        verdict = SAME
    return {
        "newly_failed": newly,
        "fixed": fixed,
        "p_worse": finding.contrast.worse,
        "p_better": finding.contrast.better,
        "verdict": verdict,
        "because": _because(finding, question),
    }


def _because(finding: Finding, question: Question) -> str | None:
    """Return the explanation of a verdict beyond its figures; None if it needs none."""
    contrast = finding.contrast
    if finding.verdict == NOT_WORSE:
        return f"within its margin of {question.margin:g}"
    if finding.verdict == CANNOT_TELL:
        return "no case has a score in both sweeps"
    if finding.verdict == WORSE and (contrast.worse is None or contrast.worse >= SIGNIFICANT):
        return "repeats came to the same in every case, so any fall counts"
    if finding.verdict != UNCLEAR:
        return None
    if finding.hangs_on:
        return hangs_on(finding.hangs_on)
    if finding.unseen:
        return unseen(finding.unseen, is_gain=(contrast.delta or 0.0) > 0)
    if contrast.differ < margins.FEWEST_DIFFERENT:
        cases = "1 case differs" if contrast.differ == 1 else f"{contrast.differ} cases differ"
        return f"only {cases}, too few for any test"
    if contrast.worse is None:
        return f"{contrast.units} clusters are too few for any test"
    if contrast.worse < SIGNIFICANT:
        return f"{chance(contrast.worse)} is not enough for one of many nights"
    return "could be chance"


def _defined(number: float) -> float | None:
    return None if np.isnan(number) else float(number)


def _cells(pairs: Pairs, failed: Outcomes, scored: Sequence[Scores], rows: Sequence[ComparedRow]) -> list[ComparedCell]:
    """Return every cell that differs, worst first: newly failing cells, then by the verdicts of their rows."""
    differing = sorted(_differing(failed, scored, rows), key=lambda ranked: ranked[0])
    return [
        {
            "combination": dict(pairs.choices[int(row)]),
            "case": pairs.ids[int(column)],
            **figures,
            "executions": [side[int(row), int(column)] for side in failed.executions],
            "diverged": None,
        }
        for (*_, row, column), figures in differing
    ]


def _differing(
    failed: Outcomes, scored: Sequence[Scores], rows: Sequence[ComparedRow]
) -> Iterator[tuple[tuple[float, ...], CellFigures]]:
    """Yield differing cells with their sort key: rank, metric, size, row and column."""
    both = np.isfinite(failed.before) & np.isfinite(failed.after)
    ended_otherwise = both & (failed.before != failed.after)
    for row, column in np.argwhere(ended_otherwise).tolist():
        earlier, later = failed.before[row, column], failed.after[row, column]
        failed_now = bool(later > earlier)
        figures: CellFigures = {
            "metric": None,
            "before": _outcome(earlier),
            "after": _outcome(later),
            "delta": None,
            "what": "failed" if failed_now else "fixed",
        }
        yield (0 if failed_now else 3, -1, 0.0, row, column), figures
    for number, scores in enumerate(scored):
        for row, column in np.argwhere(scores.lost).tolist():
            yield (0, number, 0.0, row, column), _cell(scores, row, column, "failed")
        for row, column in np.argwhere(scores.regained).tolist():
            yield (3, number, 0.0, row, column), _cell(scores, row, column, "fixed")
        changes = scores.changes
        differs = (np.nan_to_num(changes) != 0) & ~ended_otherwise  # which scores differ for, too
        for row, column in np.argwhere(differs).tolist():
            fell = bool((changes[row, column] < 0) == (scores.measure.better == "higher"))
            by_chance = rows[row]["metrics"][scores.metric]["verdict"] != WORSE
            place = (1 + by_chance if fell else 4, number, -abs(float(changes[row, column])), row, column)
            yield place, _cell(scores, row, column, "worse" if fell else "better")


def _cell(scores: Scores, row: int, column: int, what: Literal["failed", "fixed", "worse", "better"]) -> CellFigures:
    """Return the scores of a cell and their difference; None for a missing score."""
    return {
        "metric": scores.metric,
        "before": _defined(scores.listed[0][row, column]),
        "after": _defined(scores.listed[1][row, column]),
        "delta": _defined(scores.listed[1][row, column] - scores.listed[0][row, column]),
        "what": what,
    }


def _outcome(share: float) -> str:
    """Return one word for the outcome of a cell's repeats."""
    return {0.0: "succeeded", 1.0: "failed"}.get(float(share), f"{share:.0%} failed")
