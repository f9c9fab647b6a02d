"""The verdict on a later sweep against an earlier one: metric by metric over rows and pools of rows, then as a whole.

Pure: scores go in as tables, and what goes in may as well be simulated. A row is a combination; a pool is the mean,
case by case, of rows that share what was changed. The metrics that decide share one error of 5% (Holm, each metric the
same part of it, over its rows and pools), so a sweep in which nothing got worse is called worse in at most 5%, however
many combinations and metrics it has. All other metrics are exploratory: corrected in a family of their own, and shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.comparison.verdicts import BETTER, CANNOT_TELL, NOT_WORSE, SAME, UNCLEAR, WORSE, overall
from wtb.analysis.statistics import margins
from wtb.analysis.statistics.figures.class_intervals import FigureDifferences
from wtb.analysis.statistics.intervals import Floats
from wtb.analysis.statistics.margins import Contrast, Sides
from wtb.analysis.statistics.missing.before_and_after import BeforeAndAfter, pooled
from wtb.analysis.statistics.missing.claims import SIGNIFICANT
from wtb.analysis.statistics.missing.unseen_losses import RULE_OF_THREE, could_cancel, one_in, uneven
from wtb.analysis.statistics.paired import Compare
from wtb.analysis.statistics.power.pairs import PAIRS
from wtb.analysis.statistics.units import Units
from wtb.core.classes.frozen import frozen

if TYPE_CHECKING:
    from wtb.core.documents.matrix import Verdict


@frozen
class Question:
    """One metric of two sweeps.

    Attributes:
        gains: rows x cases, later less earlier, positive where later is better, NaN where one side is missing.
        rates: whether all scores are 0 or 1.
        compare: by the mean of the differences, or by their median.
        margin: the loss that would matter, in the unit of the metric.
        decides: whether the verdict on the sweep rests on it; else it is exploratory.
        repeatable: whether repeats of the earlier sweep came to the same in every case, so that any fall counts.
        only_worse: whether it can make a verdict worse, and where it is unclear does not keep one from being told.
        were: which rows had scores before; None for all. Of others nothing can be told, and nothing is asked.
        figures: of a figure over all cells of a row, what tests and intervals are of instead of the gains.
        sides: the scores with the cells that are missing; None where none are.
        span: how far two scores can be apart; None where nothing limits it.
    """

    gains: Floats
    rates: bool = False
    compare: Compare = "mean"
    margin: float | None = None
    decides: bool = True
    repeatable: bool = False
    only_worse: bool = False
    were: NDArray[np.bool_] | None = None
    figures: FigureDifferences | None = None
    sides: BeforeAndAfter | None = None
    span: float | None = None


@frozen
class Finding:
    """What came of one row, or pool, by one metric.

    unseen: n where differences rarer than 1 in n cases cannot show, and could cancel what would be claimed. is_uneven:
    whether few gains are far from the others. hangs_on: missing cells because of which nothing is claimed that would be
    without them. low: from where on the true gain lies, 95 times of 100. cases_needed: how many cases in all show that
    no row lost as much as the margin, 80 times of 100 where none lost any; None where there is no margin, or no number
    of cases does.
    """

    contrast: Contrast
    verdict: Verdict
    low: float | None
    cases_needed: int | None = None
    hangs_on: int | None = None
    unseen: int | None = None
    is_uneven: bool = False


@frozen
class Answer:
    """What came of one metric, by rows and by pools."""

    rows: Sequence[Finding]
    pools: Sequence[Finding]

    @property
    def verdicts(self) -> set[Verdict]:
        return {finding.verdict for finding in (*self.rows, *self.pools)}


def answer(
    questions: Mapping[str, Question],
    pools: Sequence[Sequence[int]] = (),
    *,
    seed: int = 0,
    units: Units = None,
    level: float = SIGNIFICANT,
) -> dict[str, Answer]:
    """Hold rows, and pools of them, against what they were.

    Args:
        questions: by the name of the metric.
        pools: the numbers of the rows of each.
        seed: of the random signs.
        units: the cluster of each case, None where each is one of its own.
        level: below which corrected p a loss is worse; smaller where the sweep is one of many nights.
    """
    answers: dict[str, Answer] = {}
    for decides in (True, False):
        family = {name: question for name, question in questions.items() if question.decides is decides}
        sides = [
            Sides(question.gains, question.rates, question.compare, question.figures, question.sides)
            for question in family.values()
        ]
        for (name, question), (rows, of_pools) in zip(
            family.items(), margins.hold(sides, pools, seed=seed, units=units), strict=True
        ):
            needed = _cases_needed(question, rows)
            answers[name] = Answer(
                [_finding(question, contrast, question.gains[row], needed, level) for row, contrast in enumerate(rows)],
                [
                    _finding(question, contrast, pooled(question.gains, pool), needed, level)
                    for pool, contrast in zip(pools, of_pools, strict=True)
                ],
            )
    return {name: answers[name] for name in questions}


def _cases_needed(question: Question, rows: Sequence[Contrast]) -> int | None:
    """Return how many cases show the margin for all rows together, which the verdict on the sweep asks for."""
    varying = [(row, contrast) for row, contrast in enumerate(rows) if contrast.spread is not None]
    if not question.margin or not varying:
        return None
    gains = question.gains[[row for row, _ in varying]]
    complete = gains[:, np.isfinite(gains).all(axis=0)]
    correlation = None
    if complete.shape[1] >= PAIRS and (complete.std(axis=1) > 0).all():
        correlation = np.atleast_2d(np.corrcoef(complete))
    spreads = np.array([contrast.spread for _, contrast in varying])
    per_unit = max(contrast.n / max(contrast.units, 1) for _, contrast in varying)
    return math.ceil(margins.cases_for(question.margin, spreads, correlation) * per_unit)


def _finding(question: Question, contrast: Contrast, gains: Floats, needed: int | None, level: float) -> Finding:
    low = _low(contrast, question)
    verdict = _verdict(question, contrast, low, gains, level)
    hangs_on = None
    if verdict == UNCLEAR and contrast.missing:
        was_within = question.margin is not None and (contrast.low_without or -math.inf) > -question.margin
        hangs_on = contrast.missing if was_within else contrast.hangs_on
    unseen = None
    if verdict in (WORSE, BETTER, NOT_WORSE) and not question.repeatable and _is_cancelled(question, gains, verdict):
        verdict, unseen = UNCLEAR, one_in(contrast.n)
    is_claimed = verdict in (WORSE, BETTER) and not question.repeatable
    is_uneven = is_claimed and not question.rates and question.compare == "mean" and bool(uneven(gains[None]))
    is_open = verdict == UNCLEAR and not hangs_on and not unseen and contrast.spread
    more = max(needed, contrast.n + 1) if needed is not None and is_open else None
    return Finding(contrast, verdict, low, more, hangs_on, unseen, is_uneven)


def _is_cancelled(question: Question, gains: Floats, verdict: Verdict) -> bool:
    """Return whether differences too rare to show in so many cases could make a verdict wrong."""
    if question.compare == "median" or question.figures is not None:
        return False
    if verdict == NOT_WORSE:
        size = question.span * RULE_OF_THREE / max(1, int(np.isfinite(gains).sum())) if question.span else 0.0
        return float(np.nanmax(np.abs(gains))) < size and (question.margin or 0.0) < size
    return could_cancel(gains, question.span, side=1 if verdict == BETTER else -1)


def _low(contrast: Contrast, question: Question) -> float | None:
    """The lower bound of the gain; the gain itself where so many cases all gained as much."""
    if contrast.low is None and contrast.n >= PAIRS and contrast.spread is None:
        return contrast.delta
    return max(contrast.low, -1.0) if contrast.low is not None and question.rates else contrast.low


def _verdict(question: Question, contrast: Contrast, low: float | None, gains: Floats, level: float) -> Verdict:
    if not contrast.n:
        return CANNOT_TELL
    if not contrast.differ:
        return SAME
    rose = contrast.better is not None and contrast.better < SIGNIFICANT
    if question.margin is not None and low is not None and low > -question.margin:
        return BETTER if rose else NOT_WORSE
    if question.repeatable:
        return WORSE if (np.nan_to_num(gains) < 0).any() else BETTER
    if contrast.worse is not None and contrast.worse < level:
        return WORSE
    return BETTER if rose else UNCLEAR


def of_sweep(answers: Mapping[str, Answer], questions: Mapping[str, Question]) -> Verdict:
    """The verdict on a sweep by the metrics that decide: worse where a row or a pool is, else that on its rows."""
    deciding = {name: question for name, question in questions.items() if question.decides}
    if any(WORSE in answers[name].verdicts for name in deciding):
        return WORSE
    return overall(
        finding.verdict
        for name, question in deciding.items()
        for row, finding in enumerate(answers[name].rows)
        if (question.were is None or question.were[row]) and not (question.only_worse and finding.verdict == UNCLEAR)
    )
