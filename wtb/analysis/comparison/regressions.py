"""The verdict on a later sweep compared with an earlier one: by metric over rows and pools, then as a whole.

Pure: scores are passed as tables, which may as well be simulated. A row is a combination; a pool is the mean, case by
case, of rows that share a change. The deciding metrics share one error of 5% (Holm, each metric the same part of it,
over its rows and pools), so at most 5% of sweeps in which nothing got worse are called worse, however many combinations
and metrics they have. All other metrics are exploratory: they are corrected as a family of their own, and shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.comparison.verdicts import BETTER, CANNOT_TELL, NOT_WORSE, SAME, UNCLEAR, WORSE, overall
from wtb.analysis.statistics import margins
from wtb.analysis.statistics.claims import RULE_OF_THREE, SIGNIFICANT, could_cancel, one_in, uneven
from wtb.analysis.statistics.class_intervals import FigureDifferences
from wtb.analysis.statistics.intervals import Floats, Units
from wtb.analysis.statistics.margins import BeforeAndAfter, Contrast, Sides, pooled
from wtb.analysis.statistics.paired import Compare
from wtb.analysis.statistics.power import PAIRS
from wtb.core.frozen import frozen

if TYPE_CHECKING:
    from wtb.core.documents.comparison import CodeChange
    from wtb.core.documents.matrix import Verdict

FEWEST = 2  # combinations; one alone is no pool


@frozen
class Pool:
    """Combinations, by number, that share changed nodes or the changed variant of one node.

    Attributes:
        rows: The numbers of the combinations.
        what: Their description.
        nodes: The changed nodes.
        variant: The changed variant, if they share just one.
    """

    rows: tuple[int, ...]
    what: str
    nodes: tuple[str, ...] = ()
    variant: str | None = None


def pools(choices: Sequence[Mapping[str, str]], changed_code: Sequence[CodeChange]) -> list[Pool]:
    """Return the pools of two sweeps, each set of combinations once: those with changed code, and all together.

    Args:
        choices: The combinations that both have.
        changed_code: The changes of code in the later sweep.
    """
    distinct: dict[tuple[int, ...], Pool] = {}
    # All rows together are always a pool, because WTB does not see every change, for example of a model behind a name.
    for pool in (*_changed(choices, changed_code), _all(choices)):
        if len(pool.rows) >= FEWEST:
            distinct.setdefault(pool.rows, pool)
    return list(distinct.values())


def _changed(choices: Sequence[Mapping[str, str]], changed_code: Sequence[CodeChange]) -> Iterator[Pool]:
    variants: dict[str, list[str]] = {}
    for change in changed_code:
        variants.setdefault(change["node"], []).append(change["variant"])
    shared: dict[tuple[int, ...], list[str]] = {}
    for node, names in variants.items():
        # A node that is not varied is in no choice, and every combination goes through it.
        rows = tuple(row for row, choice in enumerate(choices) if choice.get(node) in (None, *names))
        shared.setdefault(rows, []).append(node)
    for rows, nodes in shared.items():
        named = f"{len(rows):,} combinations"
        named = f"all {named}, which" if len(rows) == len(choices) else f"the {named} that"
        changed = f"changed node{'' if len(nodes) == 1 else 's'} {', '.join(nodes)}"
        yield Pool(rows, f"{named} share the {changed}", tuple(nodes))
    for node, names in variants.items():
        for name in names:
            rows = tuple(row for row, choice in enumerate(choices) if choice.get(node) == name)
            yield Pool(rows, f"the {len(rows):,} combinations with the changed {node}={name}", (node,), name)


def _all(choices: Sequence[Mapping[str, str]]) -> Pool:
    return Pool(tuple(range(len(choices))), f"all {len(choices):,} combinations")


@frozen
class Question:
    """One metric of two sweeps, as a question for tests.

    Attributes:
        gains: Rows x cases, later minus earlier, positive if the later sweep is better, NaN if one side is missing.
        rates: True if all scores are 0 or 1.
        compare: Compare by the mean of the differences, or by their median.
        margin: The loss that would matter, in the unit of the metric.
        decides: True if the verdict on the sweep depends on it; otherwise it is exploratory.
        repeatable: True if repeats of the earlier sweep had equal results in every case, so that any fall counts.
        only_worse: True if it can only make a verdict worse, and does not prevent one while it is unclear.
        were: The rows that had scores before; None for all. Other rows are not tested.
        figures: Differences of a figure over all cells of a row, which tests use instead of the gains.
        sides: The scores with the missing cells; None if none are missing.
        span: The largest possible difference of two scores; None without a limit.
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
    """The result for one row or pool under one metric.

    Attributes:
        contrast: The paired tests.
        verdict: The verdict.
        low: The lower 95% bound of the true gain.
        cases_needed: How many cases show, with a power of 80% if no row lost anything, that no row lost as much as the
            margin; None without a margin, or if no number of cases does.
        hangs_on: Missing cells that prevent a claim which would be made without them.
        unseen: n if differences rarer than 1 in n cases could cancel the claim unseen.
        is_uneven: True if few gains are far from the others.
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
    """The results for one metric, by row and by pool."""

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
    """Compare rows, and pools of them, with their earlier results.

    Args:
        questions: Questions by the name of the metric.
        pools: The numbers of the rows of each pool.
        seed: The seed of the random signs.
        units: The cluster of each case; None if each is its own.
        level: A corrected p below this is a loss; smaller if the sweep is one of many nights.
    """
    answers: dict[str, Answer] = {}
    # Two families: exploratory metrics must not make the deciding ones harder to show.
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
    """Return how many cases show the margin for all rows together, which the verdict on the sweep requires."""
    varying = [(row, contrast) for row, contrast in enumerate(rows) if contrast.spread is not None]
    if not question.margin or not varying:
        return None
    gains = question.gains[[row for row, _ in varying]]
    # Rows that share cases rise and fall together; taken as independent they would need too many cases.
    complete = gains[:, np.isfinite(gains).all(axis=0)]
    correlation = None
    # A row without spread has no correlation, and numpy would return NaN for all of its pairs.
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
    # A repeatable sweep has no chance differences, so a claim about it needs no such guard.
    if verdict in (WORSE, BETTER, NOT_WORSE) and not question.repeatable and _is_cancelled(question, gains, verdict):
        verdict, unseen = UNCLEAR, one_in(contrast.n)
    is_claimed = verdict in (WORSE, BETTER) and not question.repeatable
    is_uneven = is_claimed and not question.rates and question.compare == "mean" and bool(uneven(gains[None]))
    is_open = verdict == UNCLEAR and not hangs_on and not unseen and contrast.spread
    more = max(needed, contrast.n + 1) if needed is not None and is_open else None
    return Finding(contrast, verdict, low, more, hangs_on, unseen, is_uneven)


def _is_cancelled(question: Question, gains: Floats, verdict: Verdict) -> bool:
    """Return whether differences too rare to occur in these cases could make a verdict wrong."""
    if question.compare == "median" or question.figures is not None:
        return False
    if verdict == NOT_WORSE:
        size = question.span * RULE_OF_THREE / max(1, int(np.isfinite(gains).sum())) if question.span else 0.0
        return float(np.nanmax(np.abs(gains))) < size and (question.margin or 0.0) < size
    return could_cancel(gains, question.span, side=1 if verdict == BETTER else -1)


def _low(contrast: Contrast, question: Question) -> float | None:
    """Return the lower bound of the gain; the gain itself if enough cases all gained the same."""
    if contrast.low is None and contrast.n >= PAIRS and contrast.spread is None:
        return contrast.delta
    # A rate cannot fall by more than 1, whatever the interval of a normal approximation is.
    return max(contrast.low, -1.0) if contrast.low is not None and question.rates else contrast.low


def _verdict(question: Question, contrast: Contrast, low: float | None, gains: Floats, level: float) -> Verdict:
    if not contrast.n:
        return CANNOT_TELL
    if not contrast.differ:
        return SAME
    rose = contrast.better is not None and contrast.better < SIGNIFICANT
    # The margin comes first: a loss that is shown to be smaller than the margin is accepted even if it is significant.
    if question.margin is not None and low is not None and low > -question.margin:
        return BETTER if rose else NOT_WORSE
    if question.repeatable:
        return WORSE if (np.nan_to_num(gains) < 0).any() else BETTER
    if contrast.worse is not None and contrast.worse < level:
        return WORSE
    return BETTER if rose else UNCLEAR


def of_sweep(answers: Mapping[str, Answer], questions: Mapping[str, Question]) -> Verdict:
    """Return the verdict on a sweep by its deciding metrics: worse if any row or pool is, else that on its rows."""
    deciding = {name: question for name, question in questions.items() if question.decides}
    if any(WORSE in answers[name].verdicts for name in deciding):
        return WORSE
    return overall(
        finding.verdict
        for name, question in deciding.items()
        for row, finding in enumerate(answers[name].rows)
        if (question.were is None or question.were[row]) and not (question.only_worse and finding.verdict == UNCLEAR)
    )
