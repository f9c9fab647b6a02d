"""Comparison of all combinations under one metric: means, differences from the baseline, and the possible best.

A row of scores is a combination, a column a case. Rows are ranked over the cases that all of them have, so that none
gains by failing on hard cases; a row that lacks many cases is not ranked, with a warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.best import Leads, NextStep, Ranking, chosen_level, next_step, rank, shrunken
from wtb.analysis.statistics.claims import (
    SIGNIFICANT,
    Claim,
    MissingCells,
    Pairs,
    Side,
    corrected,
    could_cancel,
    count_of,
    one_in,
    p_of_unseen,
    ranges,
    span_of,
    test_columns,
    uneven,
    with_worst,
)
from wtb.analysis.statistics.class_intervals import FigureDifferences, differences, row_intervals
from wtb.analysis.statistics.intervals import (
    FEWEST,
    SKEWED,
    Floats,
    Interval,
    Units,
    Z,
    by_unit,
    differences_by_unit,
    intervals,
    row_blocks,
    skewness,
    tail_quantile,
    wilson,
)
from wtb.analysis.statistics.paired import (
    SMALLEST_P,
    Compare,
    Tested,
    chance,
    cleaned,
    defined,
    from_baseline,
    interval_times,
    means,
    paired_tests,
    subtract,
    times,
    unit_of,
)
from wtb.analysis.statistics.power import PAIRS, Change, detectable, larger
from wtb.analysis.statistics.row_figures import FigureRows
from wtb.core.frozen import frozen
from wtb.core.scoring.failure_scores import hangs_on, unseen

T = TypeVar("T", bound=Any)
Claimed = frozenset[tuple[int, int]]
Better = Literal["higher", "lower"]
ELIGIBLE = 0.95  # of the cases; a row with a score in fewer is not ranked


@frozen
class Design:
    """The settings by which the rows of one metric are compared.

    Attributes:
        baseline: The index of the row from which differences are taken.
        better: Whether higher or lower scores are better.
        by: The figure of the differences between rows that counts.
        units: The cluster of each case; None if each case is its own.
        seed: The seed of the random signs.
        metrics: The number of metrics that share a correction for the best and the smallest detectable differences.
        share: The part of 5% that is left if other rows were tried over these cases before.
        share_of_next: The same for a sweep of these rows over the given number of cases; by default `share`.
        claimed: (row, sign of its difference) shown by an earlier look. Showing it again is no new claim: if it was
            wrong, it is wrong once.
        known_best: Rows that an earlier look found better than all others.
        known_standings: (row, whether it is within the same margin of the best of all rows), shown by an earlier look.
        figure: The cells of the rows, if scores are contributions to a figure over all cells of a row.
        ends: The lowest and the highest possible score, which no interval exceeds.
        missing: The missing cells; a claim has to be significant even at their worst.
    """

    baseline: int | None = None
    better: Better = "higher"
    by: Compare = "mean"
    units: Units = None
    seed: int = 0
    metrics: int = 1
    share: float = 1.0
    share_of_next: Callable[[int], float] | None = None
    claimed: Claimed = frozenset()
    known_best: frozenset[int] = frozenset()
    known_standings: frozenset[tuple[int, bool]] = frozenset()
    figure: FigureRows | None = None
    ends: Interval | None = None
    missing: MissingCells | None = None

    @property
    def sign(self) -> float:
        """Factor that makes higher scores better."""
        return 1.0 if self.better == "higher" else -1.0

    @property
    def level(self) -> float:
        """Probability that a claim about any row may be wrong."""
        return max(SIGNIFICANT * self.share / self.metrics, SMALLEST_P)

    def level_of_best(self, row: int | None) -> float:
        """Return the probability that a claim of a best row may be wrong."""
        return SIGNIFICANT / self.metrics if row in self.known_best else self.level

    def level_of_next(self, cases: int) -> float:
        """Return the level for claims of a sweep of these rows over so many cases."""
        share = self.share if self.share_of_next is None else self.share_of_next(cases)
        return max(SIGNIFICANT * share / self.metrics, SMALLEST_P)

    def of_cases(self, selected: NDArray[np.bool_] | Sequence[int]) -> Design:
        """Return the design over some of the cases, with their clusters numbered from 0."""
        if self.units is None:
            return self
        return replace(self, units=np.unique(self.units[selected], return_inverse=True)[1])

    def pairs(self, scores: Floats) -> Pairs | None:
        """Return a table for claims with missing cells at their worst; None if nothing is missing."""
        if self.missing is None or not self.missing.total.any() or not np.isfinite(scores).any():
            return None
        return Pairs(scores, self.missing, self.ends, self.by, self.units, self.figure, self.seed)

    def within(self, interval: Interval | None) -> Interval | None:
        """Return an interval of a mean, clipped to the bounds of scores."""
        if interval is None or self.ends is None:
            return interval
        low, high = self.ends
        return min(max(interval[0], low), high), min(max(interval[1], low), high)

    def apart(self, interval: Interval | None) -> Interval | None:
        """Return an interval of a difference, clipped to the largest possible difference."""
        return interval and (max(interval[0], -self.width), min(interval[1], self.width))

    @property
    def width(self) -> float:
        """Largest possible difference of two scores."""
        return math.inf if self.ends is None else self.ends[1] - self.ends[0]

    def rates(self, scores: Floats) -> NDArray[np.bool_]:
        """Return which rows are compared as pass rates."""
        return passes(scores, self.better) & (self.by == "mean" and self.figure is None)

    def figures(self, rows: Sequence[int]) -> FigureDifferences | None:
        """Return differences of the rows' figures from the baseline's; None if it is scores that differ."""
        if self.figure is None or self.baseline is None:
            return None
        return differences(self.figure, self.baseline, rows, self.units).times(-1)

    def pairs_of_rates(self, rates: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows are pass rates like the baseline."""
        return rates & (self.baseline is not None and rates[self.baseline])


PLAIN = Design()


@frozen(slots=True)
class Estimate:
    """One combination under one metric, with the fields of an entry of `metrics` in the JSON contract.

    Attributes:
        n: Cases with a score.
        n_pairs: Cases with a score of the row and of the baseline; 0 for the baseline itself.
        mean: The mean.
        ci: Its 95% interval.
        delta: The mean difference from the baseline.
        delta_ci: Its 95% interval.
        p: The p-value of the two-sided paired test against the baseline.
        p_adjusted: The same after Holm's correction over all combinations, with missing cells at their worst.
        effect: The standardized effect.
        detectable: The larger of the two smallest detectable changes.
        ranks: The first and the last rank that it could have; None if it is not ranked.
        common_mean: The mean over the cases that all ranked rows have; None if it is not ranked.
        detectable_fall: The smallest true fall that is found with 80% power after the correction.
        detectable_rise: The smallest true rise that is found with 80% power after the correction.
        missing: Missing cells of the row.
        mean_at_worst: The range of the mean with missing cells at either end.
        delta_at_worst: The range of the difference with missing cells at either end.
        pairs_missing: Missing cells of the row and of the baseline.
        p_at_worst: p with missing cells at their worst, if p is below 5%.
        hangs_on: Missing cells without which the difference would be significant; None if it does not depend on any.
        unseen: n if an opposite difference rarer than 1 in n cases could cancel this one; None if not.
    """

    n: int
    n_pairs: int
    mean: float | None
    ci: Interval | None
    delta: float | None
    delta_ci: Interval | None
    p: float | None
    p_adjusted: float | None
    effect: float | None = None
    detectable: float | None = None
    ranks: tuple[int, int] | None = None
    common_mean: float | None = None
    detectable_fall: float | None = None
    detectable_rise: float | None = None
    missing: int = 0
    mean_at_worst: Interval | None = None
    delta_at_worst: Interval | None = None
    pairs_missing: int = 0
    p_at_worst: float | None = None
    hangs_on: int | None = None
    unseen: int | None = None


@frozen(slots=True)
class Lead:
    """The best row compared with its closest rival: the next one if it is clear, else the one it is least sure to beat.

    Attributes:
        rival: The row of the rival.
        lead: By how much the best row is better.
        ci: The interval of the lead.
        p: The p-value of the lead.
        n_pairs: Cases with a score of both.
        next_step: The next step; None if the best is settled, or nothing can be computed.
        because: The reason why it is not settled.
        hangs_on: How many missing cells would have to be known if the best leads every rival by the measured scores.
        unseen: n if it leads, and losses rarer than 1 in n cases could cancel that.
    """

    rival: int | None = None
    lead: float | None = None
    ci: Interval | None = None
    p: float | None = None
    n_pairs: int = 0
    next_step: NextStep | None = None
    because: str | None = None
    hangs_on: int | None = None
    unseen: int | None = None


@frozen(slots=True)
class Winner:
    """Figures of the best row, given that it was chosen for them.

    Attributes:
        mean: Its mean over the cases that all ranked rows have.
        ci: An interval that covers whichever row turns out to be the best.
        shrunken: Its expected mean on new cases.
    """

    mean: float
    ci: Interval | None
    shrunken: float | None


@frozen
class Comparison:
    """All combinations under one metric.

    Attributes:
        rows: One estimate each.
        best: The ranked row with the best mean.
        clear: True if it beats every other row in the paired test.
        candidates: The rows that could be the best, including it; only it if it is clear.
        unranked: Rows with scores in too few of the cases.
        cases: How many cases all ranked rows have; the ranking is over these.
        lead: The best row compared with its closest rival.
        winner: The figures of the best row.
        skewed: How many cases the intervals depend on if skewness makes most of them unreliable, else None.
        uneven: Rows with a significant difference that a few cases dominate, so that p may be off.
    """

    rows: tuple[Estimate, ...]
    best: int | None
    clear: bool
    candidates: tuple[int, ...]
    unranked: tuple[int, ...]
    cases: int
    lead: Lead
    winner: Winner | None
    skewed: int | None
    uneven: tuple[int, ...] = ()


def compare(scores: Floats, design: Design = PLAIN) -> Comparison:
    """Return estimates for every row, and which rows could be the best.

    Args:
        scores: Combinations x cases, averaged over repeats; a score that is not finite, or beyond 1e100, counts as
            missing. A case without any score counts against all combinations.
        design: How they are compared.
    """
    # Sums of squares of huge or tiny scores would overflow or vanish, so everything is computed near 1 and scaled back.
    if design.figure is None and (unit := unit_of(scores)) != 1.0:
        return _times(compare(scores / unit, replace(design, ends=interval_times(design.ends, 1 / unit))), unit)
    scores = cleaned(scores)
    rates, units = design.rates(scores), design.units
    tested = _held_against_baseline(scores, rates, design)
    pairs, (p, deltas) = design.pairs(scores), test_columns(tested)
    tests = with_worst(pairs, design.baseline, p, deltas)
    shares = [1.0 if is_claimed(i, row.delta, design.claimed) else design.share for i, row in enumerate(tested)]
    adjusted, hanging = corrected(tests.p, tests.at_worst, np.array(shares))
    cancelled = _unseen(scores, adjusted, deltas, design)
    # A corrected p above 5% with an interval that excludes 0 would contradict itself.
    tested = [_corrected_interval(row, p) for row, p in zip(tested, adjusted.tolist(), strict=True)]
    estimates = means(scores)
    race = _Race(scores, rates, design, pairs)
    columns = (
        np.isfinite(scores).sum(axis=1).tolist(),
        tested,
        defined(estimates),
        defined(_means_ci(scores, rates, design)),
        defined(adjusted),
        race.ranks(),
        race.common_means(),
        _detectable(scores, tested, rates, design),
        *ranges(pairs, design.baseline, len(scores)),
        tests.missing.tolist(),
        defined(tests.at_worst),
        [int(missing) if is_hanging else None for missing, is_hanging in zip(tests.missing, hanging, strict=True)],
        cancelled,
    )
    rows = tuple(
        Estimate(
            n,
            row.n,
            mean,
            design.within(ci),
            row.delta,
            design.apart(row.ci),
            row.p,
            p,
            row.effect,
            larger(smallest),
            places,
            common,
            *smallest,
            *missing,
        )
        for n, row, mean, ci, p, places, common, smallest, *missing in zip(*columns, strict=True)
    )
    (clear, lead), winner = race.lead(), race.winner()
    return Comparison(
        rows=rows,
        best=race.best,
        clear=clear,
        candidates=race.candidates(clear, lead),
        unranked=tuple(np.flatnonzero(np.isfinite(estimates) & ~race.eligible).tolist()),
        cases=int(race.common.sum()),
        lead=replace(lead, ci=design.apart(lead.ci)),
        winner=winner and replace(winner, ci=design.within(winner.ci)),
        skewed=_skewed(by_unit(scores if not rates.any() else scores[~rates], units))
        if design.by == "mean" and design.figure is None
        else None,
        uneven=_uneven(scores, adjusted, rates, design),
    )


def _corrected_interval(row: Tested, p: float) -> Tested:
    """Return a test whose interval contains 0 if the difference is not claimed. `p` is the corrected one.

    The interval is widened to the level of its test (Bonferroni at the step of Holm's correction).
    """
    if row.ci is None or row.p is None or row.delta is None or not p >= SIGNIFICANT or row.ci[0] <= 0 <= row.ci[1]:
        return row
    tail = SIGNIFICANT / 2 * min(1.0, row.p / p)
    wider = tail_quantile(tail) / Z if row.p > 0 else 1.0
    low, high = (row.delta + wider * (end - row.delta) for end in row.ci)
    return replace(row, ci=(min(low, 0.0), max(high, 0.0)))


def _unseen(scores: Floats, adjusted: Floats, deltas: Floats, design: Design) -> list[int | None]:
    """Return which significant differences a rare, unseen one could cancel; their p becomes its probability.

    Returns:
        For each row n if differences rarer than 1 in n cases cannot show, or None.
    """
    counts: list[int | None] = [None] * len(scores)
    span = span_of(design.ends)
    if design.by != "mean" or design.figure is not None or span is None or design.baseline is None:
        return counts
    for row in np.flatnonzero(adjusted < SIGNIFICANT).tolist():
        differences, side = subtract(scores[row], scores[design.baseline]), 1 if deltas[row] > 0 else -1
        if could_cancel(differences, span, side=side):
            adjusted[row] = max(adjusted[row], p_of_unseen(differences, span, side=side), SIGNIFICANT)
            counts[row] = one_in(int(np.isfinite(differences).sum()))
    return counts


def _uneven(scores: Floats, adjusted: Floats, rates: NDArray[np.bool_], design: Design) -> tuple[int, ...]:
    """Return rows that differ significantly from the baseline because of few cases."""
    if design.by != "mean" or design.figure is not None or design.baseline is None:
        return ()
    some = np.flatnonzero((adjusted < SIGNIFICANT) & ~rates).tolist()
    differences = by_unit(subtract(scores[some], scores[design.baseline]), design.units)
    return tuple(some[place] for place in uneven(differences))


def _times(comparison: Comparison, unit: float) -> Comparison:
    """Return a comparison of scores that are `unit` times as large."""

    def scaled(record: T, figures: Sequence[str], intervals: Sequence[str]) -> T:
        changed = {name: times(getattr(record, name), unit) for name in figures}
        changed_intervals = {name: interval_times(getattr(record, name), unit) for name in intervals}
        return replace(record, **changed, **changed_intervals)

    step = comparison.lead.next_step
    figures = ("mean", "delta", "detectable", "common_mean", "detectable_fall", "detectable_rise")
    ends = ("ci", "delta_ci", "mean_at_worst", "delta_at_worst")
    return replace(
        comparison,
        rows=tuple(scaled(row, figures, ends) for row in comparison.rows),
        lead=scaled(
            replace(comparison.lead, next_step=step and scaled(step, ("differ_at_most",), ())), ("lead",), ("ci",)
        ),
        winner=comparison.winner and scaled(comparison.winner, ("mean", "shrunken"), ("ci",)),
    )


def _held_against_baseline(scores: Floats, rates: NDArray[np.bool_], design: Design) -> list[Tested]:
    """Test all rows against the baseline, one block of rows at a time."""
    both = design.pairs_of_rates(rates)
    tests: list[Tested] = []
    for rows in row_blocks(scores.shape):
        tests += paired_tests(
            from_baseline(scores, design.baseline, rows),
            seed=design.seed,
            rates=both[rows],
            compare=design.by,
            units=design.units,
            figures=design.figures(range(*rows.indices(len(scores)))),
        )
    return tests


def _detectable(
    scores: Floats, tested: Sequence[Tested], rates: NDArray[np.bool_], design: Design
) -> list[tuple[Change, Change]]:
    """Return the smallest fall and rise from the baseline that each row could show."""
    family = max(1, sum(row.n >= 2 for row in tested) * design.metrics)
    tests = math.ceil(family / max(design.share, SMALLEST_P))
    both = design.pairs_of_rates(rates) & (design.units is None)
    changes: list[tuple[Change, Change]] = []
    for row, is_rate, test in zip(scores, both.tolist(), tested, strict=True):
        rate = None
        if is_rate and test.n:
            before = scores[design.baseline or 0]
            rate = float(before[np.isfinite(row) & np.isfinite(before)].mean())
        changes.append(detectable(test.spread, test.units, tests, rate))
    return changes


def is_claimed(row: int, delta: float | None, claimed: Claimed) -> bool:
    """Return whether the difference of a row was shown before."""
    return bool(claimed) and delta is not None and (row, int(np.sign(delta))) in claimed


def passes(scores: Floats, better: Better) -> NDArray[np.bool_]:
    """Return which rows are pass rates: all of their scores are 0 or 1.

    If lower is better, both must occur in some row: a cost of 0, or 1 node run, in every case is a constant.
    """
    if better == "lower" and not ((scores == 0).any() and (scores == 1).any()):
        return np.zeros(len(scores), dtype=np.bool_)
    return np.asarray((np.isin(scores, (0, 1)) | np.isnan(scores)).all(axis=1))


def _means_ci(scores: Floats, rates: NDArray[np.bool_], design: Design, z: float = Z) -> Floats:
    """Return an interval for the mean of each row, by the method that fits that row."""
    units = design.units
    if design.figure is not None:
        return row_intervals(design.figure, units, z)
    ends = intervals(by_unit(scores, units), z)
    for i in np.flatnonzero(rates).tolist() if units is None else ():
        row = scores[i][np.isfinite(scores[i])]
        ends[i] = wilson(float(row.sum()), row.size, z)
    return ends


def _skewed(values: Floats) -> int | None:
    skews = skewness(values)
    is_known = np.isfinite(skews)
    if not is_known.any() or np.median(skews[is_known]) <= SKEWED:
        return None
    return int(np.median(np.isfinite(values).sum(axis=1)[is_known]))


class _Race:
    """Ranked rows over the cases that all of them have, negated if lower is better."""

    def __init__(self, scores: Floats, rates: NDArray[np.bool_], design: Design, pairs: Pairs | None = None) -> None:
        self.width = design.width
        self.pairs, self.span = pairs, span_of(design.ends)
        present = np.isfinite(scores)
        self.has_score = present.any(axis=1)
        self.eligible = self.has_score & (present.sum(axis=1) >= ELIGIBLE * scores.shape[1])
        self.common = present[self.eligible].all(axis=0) & self.eligible.any()
        self.rows = np.flatnonzero(self.eligible)
        self.size = len(scores)
        self.sign = design.sign
        is_whole = self.eligible.all() and self.common.all()  # then there is no need of another table
        self.scores = scores if is_whole else scores[np.ix_(self.eligible, self.common)]
        if self.sign < 0:
            self.scores = -self.scores
        self.units = design.of_cases(self.common).units
        self.figure = design.figure and design.figure.part(self.rows.tolist(), self.common)
        self.rates, self.by, self.seed = rates[self.eligible], design.by, design.seed
        self.means = means(self.scores) if self.scores.shape[1] else np.zeros(0)
        self.first = int(np.argmax(self.means)) if self.means.size else None  # among those that are ranked
        self.level, self.level_of_next = design.level_of_best(self.best), design.level_of_next

    @property
    def best(self) -> int | None:
        return None if self.first is None else int(self.rows[self.first])

    def _each(self) -> Floats:
        """Return scores by unit, summed within clusters, because only differences count."""
        return differences_by_unit(self.scores, self.units)

    @property
    def _is_of_means(self) -> bool:
        """True if differences of rows are those of their scores, so that one table serves all pairs."""
        return self.by == "mean" and self.figure is None

    def _figures(self, rivals: Sequence[int]) -> FigureDifferences | None:
        """Return the differences of the best row's figure from others; None if it is scores that differ."""
        if self.figure is None or self.first is None:
            return None
        return differences(self.figure, self.first, rivals, self.units).times(self.sign)

    def _p_of_leads(self) -> Floats:
        """Return the p-values of the best row against each row; NaN or 1 against itself."""
        if self.figure is not None and self.first is not None:
            leads = self.figure.swaps(self.first, range(len(self.rows)))
        else:
            leads = self.scores[self.first] - self.scores
        return chance(differences_by_unit(leads, self.units), self.seed, self.by)

    @cached_property
    def _ranking(self) -> Ranking:
        return rank(self._each(), self.seed)

    def ranks(self) -> list[tuple[int, int] | None]:
        by_row: list[tuple[int, int] | None] = [None] * self.size
        each = self._each()
        if self.first is None or not self._is_of_means or each.shape[1] < PAIRS:
            return by_row
        for row, (low, high) in zip(self.rows.tolist(), self._ranking.ranks.tolist(), strict=True):
            by_row[row] = (low, high)
        return by_row

    def common_means(self) -> list[float | None]:
        by_row: list[float | None] = [None] * self.size
        for row, mean in zip(self.rows.tolist(), self.means.tolist(), strict=False):  # no means without common cases
            by_row[row] = self.sign * mean
        return by_row

    def candidates(self, clear: bool, lead: Lead) -> tuple[int, ...]:
        """Return rows that could be the best. Unless it is clear, the closest rival is always included."""
        if self.first is None:
            return ()
        if clear:
            return (int(self.rows[self.first]),)
        # With so few units no sign-flip test reaches 5%, so nothing rules out any row.
        each = self._each()
        if each.shape[1] < PAIRS:
            return tuple(self.rows.tolist())
        if self._is_of_means:
            could = self._ranking.candidates.copy()
        else:
            could = ~(self._p_of_leads() * max(len(self.rows) - 1, 1) < SIGNIFICANT)
        could |= self._could_be_best(np.flatnonzero(~could))
        could[self.first] = True
        if lead.rival is not None:
            could[self.rows == lead.rival] = True
        return tuple(self.rows[could].tolist())

    def winner(self) -> Winner | None:
        """Return the figures of the best row, with an interval at the level that the luckiest of all rows needs."""
        if self.first is None:
            return None
        each = by_unit(self.scores, self.units)
        wide = chosen_level(each, self.seed)
        row = self.sign * self.scores[[self.first]]
        design = Design(units=self.units, figure=self.figure and self.figure.part([self.first]))
        # Luck lifts the best, or lowers it if lower is better.
        levels = (wide, Z) if self.sign > 0 else (Z, wide)
        low, high = (_means_ci(row, self.rates[[self.first]], design, z)[0] for z in levels)
        drawn = float(shrunken(each)[self.first]) * self.sign
        ci = (float(low[0]), float(high[1]))
        mean, is_known = float(self.means[self.first]) * self.sign, not (math.isnan(ci[0]) or math.isnan(ci[1]))
        return Winner(mean, ci if is_known else None, None if math.isnan(drawn) else drawn)

    @property
    def _nothing(self) -> str:
        """Reason why no row is the best."""
        if self.eligible.any():
            return "no case has a score of all of them"
        return "none has a score in 95% of the cases" if self.has_score.any() else "nothing is scored"

    def lead(self) -> tuple[bool, Lead]:
        """Return whether the best beats every rival, and the facts of the one that it is least sure to beat."""
        if self.first is None:
            return False, Lead(because=self._nothing)
        rivals = np.flatnonzero(np.arange(len(self.rows)) != self.first)
        if not rivals.size:
            return False, Lead(because="only one combination is ranked")
        both = self.rates[rivals] & self.rates[self.first]
        tested = self._leads_tested(rivals, both)
        p = np.array([math.nan if test.p is None else test.p for test in tested])
        ahead = np.array([test.delta or 0.0 for test in tested])
        clear = bool((ahead > 0).all() and (p < self.level).all())
        if clear and (hanging := self._hanging()):
            return False, hanging
        if clear and (unseen := self._unseen(rivals, tested)):
            return False, unseen
        # A rival that is not behind comes first, then the largest p: the pair that would be settled last.
        least_sure = np.lexsort((ahead, -np.where(np.isnan(p), np.inf, np.where(ahead > 0, p, 2.0))))[0]
        closest = int(np.argmin(ahead) if clear else least_sure)
        closest_test, (leads,) = tested[closest], self._leads(rivals[[closest]])
        facts = (int(self.rows[rivals[closest]]), closest_test.delta, closest_test.ci, closest_test.p, closest_test.n)
        if clear:
            return True, Lead(*facts)
        candidates = set(self.candidates(False, Lead(*facts)))
        because = _because(closest_test, leads, self.units, self.level)
        return False, Lead(*facts, self._next_step(rivals, tested, both, candidates), because)

    def _p_at_worst(self, rows: Sequence[int]) -> Floats:
        """Return one-sided p-values of the best row against others of the whole table, with missing cells at their
        worst.
        """
        if self.pairs is None or self.best is None:
            return np.zeros(len(rows))
        side: Side = 1 if self.sign > 0 else -1
        return self.pairs.p_at_worst([Claim(self.best, row, side) for row in rows])

    def _with_missing(self, rows: Sequence[int]) -> list[int]:
        """Return the given rows that lack cells compared with the best row, or it compared with them."""
        if self.pairs is None or self.best is None:
            return []
        return [row for row in rows if self.pairs.count_missing(self.best, row)]

    def _could_be_best(self, excluded: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which ranked rows the best does not beat with missing cells at their worst."""
        could = np.zeros(len(self.rows), dtype=np.bool_)
        some = self._with_missing(self.rows[excluded].tolist())
        could[np.isin(self.rows, np.array(some)[self._p_at_worst(some) >= SIGNIFICANT])] = len(some) > 0
        return could

    def _hanging(self) -> Lead | None:
        """Return the lead if it depends on missing cells, including those of unranked rows; None if it does not."""
        if self.pairs is None or self.best is None:
            return None
        scored_rows = [row for row in np.flatnonzero(self.has_score).tolist() if row != self.best]
        some = self._with_missing(scored_rows)
        p = self._p_at_worst(some)
        failing = np.flatnonzero(~(p < self.level)).tolist()
        if not failing:
            return None
        rival = some[max(failing, key=lambda place: p[place])]
        count = count_of(self.pairs, self.best, [some[place] for place in failing])
        leads = self.sign * subtract(self.pairs.scores[[self.best]], self.pairs.scores[[rival]])
        figure = self.pairs.figure
        figures = None if figure is None else differences(figure, self.best, [rival], self.pairs.units).times(self.sign)
        rates = self.by == "mean" and bool(np.isin(leads[np.isfinite(leads)], (-1, 0, 1)).all())
        (test,) = paired_tests(
            leads, seed=self.seed, rates=rates, compare=self.by, units=self.pairs.units, figures=figures
        )
        return Lead(rival, test.delta, test.ci, test.p, test.n, None, f"that {hangs_on(count)}", count)

    def _unseen(self, rivals: NDArray[np.int64], tested: Sequence[Tested]) -> Lead | None:
        """Return the rival whose deficit a rare, unseen loss could cancel; None if there is none."""
        if self.span is None or not self._is_of_means:
            return None
        for place, test in zip(rivals.tolist(), tested, strict=True):
            leads = subtract(self.scores[self.first], self.scores[place])
            if could_cancel(leads, self.span, side=1):
                count = one_in(test.n)
                facts = (int(self.rows[place]), test.delta, test.ci, test.p, test.n)
                return Lead(*facts, because=unseen(count, is_gain=True), unseen=count)
        return None

    def _leads(self, rivals: NDArray[np.int64]) -> Floats:
        """Return by how much the best row is ahead of others, by case."""
        return subtract(self.scores[self.first], self.scores[rivals])

    def _leads_tested(self, rivals: NDArray[np.int64], rates: NDArray[np.bool_]) -> list[Tested]:
        """Test the best row against others, one block of rows at a time."""
        tests: list[Tested] = []
        for rows in row_blocks((len(rivals), self.scores.shape[1])):
            leads = self._leads(rivals[rows])
            figures = self._figures(rivals[rows].tolist())
            tests += paired_tests(
                leads, seed=self.seed, rates=rates[rows], compare=self.by, units=self.units, figures=figures
            )
        return tests

    def _next_step(
        self, rivals: NDArray[np.int64], tested: Sequence[Tested], rates: NDArray[np.bool_], candidates: set[int]
    ) -> NextStep | None:
        """Plan what would settle which of the candidates is the best."""
        close = [place for place, rival in enumerate(rivals.tolist()) if int(self.rows[rival]) in candidates]
        some = [tested[place] for place in close]
        if not some or any(test.p is None for test in some):
            return None
        leads = Leads(self._leads(rivals[close]), some, rates[close], self.units, self._is_of_means, self.width)
        return next_step(leads, self.level_of_next)


def _because(tested: Tested, leads: Floats, units: Units, level: float) -> str:
    """Return the reason why the best is not clearly ahead."""
    differ = int((np.nan_to_num(leads) != 0).sum())
    if tested.n < 2:
        return "they have only one case in common"
    if units is not None and np.unique(units).size < FEWEST:
        return f"{np.unique(units).size} clusters are too few; expected {FEWEST} or more"
    if differ == 0:
        return f"they score the same in all {tested.n:,} cases that both have"
    if tested.delta is not None and tested.delta <= 0:
        return "the runner-up is equally good on the shared cases"
    if differ < PAIRS:
        cases = "one case differs" if differ == 1 else f"{differ} cases differ"
        return f"only {cases} between them, too few for a test"
    if tested.p is not None and level <= tested.p < SIGNIFICANT:
        return "that could be chance, given how many combinations were tried over these cases"
    return "that could be chance"
