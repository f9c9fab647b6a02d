"""Estimates of a running sweep that are valid however often one looks: those of `compare` at that time.

Cases start in a random order that was decided beforehand, and finish at their own pace, quick or easy ones sooner. So a
combination is estimated over the first cases of that order that it has finished without a gap, and two are compared
over those that both have. Intervals hold at all times together (see `anytime`). There is no p.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.anytime import asymptotic, bounded, limit_from
from wtb.analysis.statistics.claims import SIGNIFICANT, Claim, Side, count_of
from wtb.analysis.statistics.comparing import ELIGIBLE, PLAIN, Comparison, Design, Estimate, Lead
from wtb.analysis.statistics.good_enough import Standing, at_worst, standing_of
from wtb.analysis.statistics.intervals import Floats, Units, sums_of_units
from wtb.analysis.statistics.paired import cleaned, defined, from_baseline, means, shifts, subtract
from wtb.analysis.statistics.power import PAIRS
from wtb.core.frozen import frozen
from wtb.core.scoring.failure_scores import hangs_on

Scale = tuple[float, float]

# How intervals are made: exact, or in the limit of many cases.
Method = Literal["betting", "asymptotic"]
MOST_ROWS = 64  # which are all compared with each other while a sweep runs


@frozen
class Look:
    """Current estimates of all combinations under one metric.

    Attributes:
        compared: The estimates, as at the end of a sweep; None for figures that need the end.
        cases: How many of the first cases all combinations have finished.
        interval: The method of intervals: "betting" if the scale of scores is known, else "asymptotic"; None for
            typical differences, which have none.
        behind: The most that the best may be behind another combination; None if unknown.
        standings: How far each combination is behind the best, if a margin was given.
    """

    compared: Comparison
    cases: int
    interval: Method | None
    behind: float | None
    standings: Sequence[Standing] = ()

    def is_known(self, margin: float = 0.0) -> bool:
        """Return whether no other combination can be better by as much as `margin`."""
        return self.compared.clear or (self.behind is not None and margin > 0 and self.behind < margin)


def look(
    scores: Floats,
    finished: NDArray[np.bool_],
    design: Design = PLAIN,
    *,
    scale: Scale | None = None,
    expected: NDArray[np.bool_] | None = None,
    margin: float | None = None,
    compared_rows: Sequence[int] | None = None,
) -> Look:
    """Return estimates for every row, and which could be the best of them, from the finished cells.

    Args:
        scores: Combinations x cases in the order in which they start, averaged over repeats; NaN where missing.
        finished: The cells that will not change; one that is finished and missing stays missing.
        design: How they are compared; claims are wrong as often as its level, at any time and for any row. Cases of a
            cluster follow each other, and it counts as their mean.
        scale: The bounds of scores.
        expected: The cases that should have a score; by default those that have any.
        margin: The loss that does not matter, if standings are wanted.
        compared_rows: The rows among which the best is; all by default.
    """
    done = finished_first(finished, design.units)
    seen = np.where(done, cleaned(scores), np.nan)
    design = replace(design, missing=design.missing and design.missing.among(done))
    view = _View(seen, design, scale)
    rivals = max(1, len(scores) - 1)
    deltas = from_baseline(seen, design.baseline)
    centres, ci = view.middle(seen), view.interval_of_means(seen)
    delta, delta_ci = view.difference(deltas), view.interval_of_differences(deltas, design.level / rivals)
    hanging = view.widen(delta_ci, delta, design.baseline, design.level / rivals)
    missing = np.zeros(len(scores), int) if design.missing is None else design.missing.total.sum(axis=1)
    counts, pairs = (np.isfinite(table).sum(axis=1).tolist() for table in (seen, deltas))
    columns = (counts, pairs, *map(defined, (centres, ci, delta, delta_ci)), missing.tolist())
    rows = tuple(
        Estimate(n, m, mean, mean_ci, gain, gain_ci, None, None, missing=lost, hangs_on=hanging.get(row))
        for row, (n, m, mean, mean_ci, gain, gain_ci, lost) in enumerate(zip(*columns, strict=True))
    )
    compared, behind = view.race(rows, done, design.level, expected)
    standings = () if margin is None else view.standings(compared, design.level, margin, compared_rows)
    return Look(compared, int(done.all(axis=0).sum()), view.method, behind, standings)


def finished_first(finished: NDArray[np.bool_], units: Units) -> NDArray[np.bool_]:
    """Return up to where each row has finished without a gap, in whole clusters."""
    if units is not None:
        open_ = np.zeros((int(units.max(initial=-1)) + 1, len(finished)), dtype=np.bool_)
        np.logical_or.at(open_, units, ~finished.T)
        finished = ~open_[units].T
    return np.asarray(np.logical_and.accumulate(finished, axis=1))


class _View:
    """The scores that may be used, and the bounds of their means."""

    def __init__(self, seen: Floats, design: Design, scale: Scale | None) -> None:
        self.seen, self.scale = seen, scale
        self.by, self.units, self.sign = design.by, design.units, design.sign
        self.pairs = design.pairs(seen)
        self.method: Method | None = None if self.by == "median" else "asymptotic" if scale is None else "betting"

    def _each(self, values: Floats) -> Floats:
        """Return the mean of each cluster, by number, which is the order of their cases."""
        if self.units is None:
            return values
        sums, counts, _ = sums_of_units(values, self.units)
        return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))

    def middle(self, values: Floats) -> Floats:
        return means(self._each(values))

    def difference(self, values: Floats) -> Floats:
        return shifts(self._each(values))[0] if self.by == "median" else self.middle(values)

    def interval_of_means(self, values: Floats) -> Floats:
        if self.scale is None:
            return asymptotic(self._each(values), SIGNIFICANT, len(self.seen))
        return self._bounded(values, *self.scale, SIGNIFICANT)

    def interval_of_differences(self, values: Floats, alpha: float) -> Floats:
        if self.by == "median":
            return np.full((len(values), 2), np.nan)
        if self.scale is None:
            return asymptotic(self._each(values), alpha, len(self.seen))
        span = self.scale[1] - self.scale[0]
        return self._bounded(values, -span, span, alpha)

    def widen(self, ci: Floats, delta: Floats, other: int | None, alpha: float) -> dict[int, int]:
        """Widen intervals that exclude 0 but do not survive missing cells at their worst, so that they contain it.

        Args:
            ci: Intervals of the differences of rows from another one, which are changed.
            delta: These differences.
            other: The other row.
            alpha: The error of an interval, on both sides together.

        Returns:
            Row -> how many missing cells its claim depends on.
        """
        hanging: dict[int, int] = {}
        if self.pairs is None or other is None:
            return hanging
        for row in np.flatnonzero((ci[:, 0] > 0) | (ci[:, 1] < 0)).tolist():
            if row == other or not (count := self.pairs.count_missing(row, other)):
                continue
            # A claim has one side, on which it may be wrong as often as the interval on both.
            lasts, ends = self._at_worst(Claim(row, other, 1 if delta[row] > 0 else -1), 2 * alpha)
            if not lasts:
                hanging[row] = count
                ci[row] = min(ci[row, 0], ends[0], 0.0), max(ci[row, 1], ends[1], 0.0)
        return hanging

    def _at_worst(self, claim: Claim, alpha: float) -> tuple[bool, Floats]:
        """Return whether a claim survives missing cells at their worst, and the interval with these."""
        assert self.pairs is not None
        every, excess = self.pairs.fills(claim)
        ends = self.interval_of_differences(excess.differences[None], alpha)[0]
        return claim.side * every.estimate > 0 and bool(ends[0] > 0 if claim.side > 0 else ends[1] < 0), ends

    def _bounded(self, values: Floats, low: float, high: float, alpha: float) -> Floats:
        each = self._each(values)
        if high <= low:
            return np.full((len(values), 2), np.nan)
        return np.where(np.isfinite(each).any(axis=1, keepdims=True), bounded(each, low, high, alpha), np.nan)

    def race(
        self,
        rows: tuple[Estimate, ...],
        done: NDArray[np.bool_],
        level: float,
        expected: NDArray[np.bool_] | None,
    ) -> tuple[Comparison, float | None]:
        """Return which rows could be the best, and by how much the leader may be behind another."""
        present = np.isfinite(self.seen)
        all_done = done.all(axis=0)
        scored = ((present.any(axis=0) if expected is None else expected) & all_done).sum()
        eligible = (present & all_done).any(axis=1) & ((present & all_done).sum(axis=1) >= ELIGIBLE * scored)
        common = present[eligible].all(axis=0) & all_done & eligible.any()
        nothing = Comparison(rows, None, False, (), (), int(common.sum()), Lead(), None, None)
        if not common.any():
            why = "no case has ended in all of them yet"
            if done.all():
                why = "none has a score in 95% of the cases" if present.any() else "nothing is scored"
            return replace(nothing, lead=Lead(because=why)), None
        ranked = np.flatnonzero(eligible)
        averages = self.sign * self.middle(np.where(common, self.seen, np.nan)[ranked])
        best = int(ranked[np.argmax(averages)])
        over_common = dict(zip(ranked.tolist(), (self.sign * averages).tolist(), strict=True))
        comparison = replace(
            nothing,
            rows=tuple(replace(row, common_mean=over_common.get(number)) for number, row in enumerate(rows)),
            best=best,
            candidates=(best,),
            unranked=tuple(np.flatnonzero(present.any(axis=1) & ~eligible).tolist()),
        )
        rivals = ranked[ranked != best]
        if not rivals.size:
            return replace(comparison, lead=Lead(because="only one combination is ranked")), None
        leads = self.sign * subtract(self.seen[best], self.seen[rivals])
        # Twice, since a claim has one side; over all rows, since any of them could have led and be claimed.
        ci = self.interval_of_differences(leads, 2 * level / len(self.seen))
        ahead = self.difference(leads)
        is_out = ci[:, 0] > 0
        hanging = self._count_hanging(best, level) if is_out.all() else 0
        clear = bool(is_out.all()) and not hanging
        known_low = np.where(np.isnan(ci[:, 0]), ahead, ci[:, 0])
        closest = int(np.argmin(ahead) if clear else np.argmin(np.where(is_out, np.inf, known_low)))
        lead = Lead(
            int(rivals[closest]),
            float(ahead[closest]),
            None if math.isnan(ci[closest, 0]) else (float(ci[closest, 0]), float(ci[closest, 1])),
            n_pairs=int(np.isfinite(leads[closest]).sum()),
            because=None if clear else self._because(float(ahead[closest]), ci[closest], leads[[closest]]),
        )
        if hanging:
            lead = replace(lead, because=f"that {hangs_on(hanging)}", hangs_on=hanging)
        candidates = tuple(sorted([best, *rivals[~is_out].tolist()]))
        behind = None if np.isnan(ci).any() or hanging else max(0.0, -float(ci[:, 0].min()))
        return replace(comparison, clear=clear, candidates=candidates, lead=lead), behind

    def standings(
        self, compared: Comparison, level: float, margin: float, compared_rows: Sequence[int] | None
    ) -> list[Standing]:
        """Return how far each row is behind the best; for many rows, how far the best may be behind the true one."""
        standings = [Standing()] * len(self.seen)
        ranked = [row for row, estimate in enumerate(compared.rows) if estimate.common_mean is not None]
        ranked = [row for row in ranked if compared_rows is None or row in compared_rows]
        if self.by == "median" or not ranked:
            return standings
        some = ranked if len(ranked) <= MOST_ROWS else [row for row in ranked if row == compared.best]
        # Twice, since a claim has one side; over all rows, since any of them could be claimed.
        alpha = 2 * level / len(self.seen)
        gaps = {row: self._gaps(row, [other for other in ranked if other != row], alpha) for row in some}
        # No other row is shown to be ahead of the best.
        candidates = [row for row, ends in gaps.items() if not (ends[:, 0] > 0).any()]
        scored = [row for row in range(len(self.seen)) if compared_rows is None or row in compared_rows]
        scored = [row for row in scored if np.isfinite(self.seen[row]).any()]
        for row, ends in gaps.items():
            if len(ends) and not np.isnan(ends).any():
                rivals = [other for other in ranked if other != row]
                standing = self._standing(row, rivals, ends, candidates, margin)
                standings[row] = self._lasting(standing, row, scored, candidates, alpha, margin)
        return standings

    def _gaps(self, row: int, rivals: list[int], alpha: float) -> Floats:
        """Return intervals of the leads of other rows over a row."""
        return self.interval_of_differences(self.sign * subtract(self.seen[rivals], self.seen[row]), alpha)

    def _standing(
        self, row: int, rivals: list[int], ends: Floats, candidates: Sequence[int], margin: float
    ) -> Standing:
        high = max(0.0, float(ends[:, 1].max()))
        least = [float(ends[place, 0]) for place, other in enumerate(rivals) if other in candidates]
        low = 0.0 if row in candidates else min(high, max(0.0, min(least, default=0.0)))
        return standing_of(low, high, margin)

    def _lasting(
        self, standing: Standing, row: int, scored: list[int], candidates: list[int], alpha: float, margin: float
    ) -> Standing:
        """Return a standing with missing cells at their worst, including those of unranked rows."""
        if self.pairs is None:
            return standing

        def bound(differences: Floats) -> float:
            return float(self.interval_of_differences(differences[None], alpha)[0, 1])

        rivals = scored if standing.within else candidates
        return at_worst(self.pairs, row, rivals, standing, margin, bound, lower=self.sign < 0)

    def _count_hanging(self, best: int, level: float) -> int:
        """Return how many missing cells the best depends on if it beats every ranked row without them."""
        if self.pairs is None:
            return 0
        side: Side = 1 if self.sign > 0 else -1
        rivals = [row for row in np.flatnonzero(np.isfinite(self.seen).any(axis=1)).tolist() if row != best]
        some = [row for row in rivals if self.pairs.count_missing(best, row)]
        alpha = 2 * level / len(self.seen)
        failing = [row for row in some if not self._at_worst(Claim(best, row, side), alpha)[0]]
        return count_of(self.pairs, best, failing) if failing else 0

    def _because(self, ahead: float, ci: Floats, leads: Floats) -> str:
        if self.by == "median":
            return "whether typical differences could be chance is known only at the end"
        if math.isnan(ci[0]):
            units = "cases" if self.units is None else "clusters"
            why, few = "no scale of the scores is declared, and without one", limit_from(len(self.seen))
            if np.isfinite(self._each(leads)).sum() < few:
                return f"{why} {few} {units} are needed to show a difference"
            return f"{why} differences this uneven show nothing before the end"
        return "the runner-up is equally good on the shared cases" if ahead <= 0 else "that could be chance so far"


LATER: Final = 0.5  # of the level, for all looks after the first together
WHOLE: Final = 4  # times as many cases: below that, a look at them is another at the same question


@frozen
class EarlierLook:
    """A sweep that was looked at before another one.

    Attributes:
        share: The part of the other sweep's cases that it had.
        cases: How many cases it had itself.
        combinations: How many combinations it compared with its baseline.
    """

    share: float
    cases: int
    combinations: int


def count_before(looks: Iterable[EarlierLook], new: int) -> float:
    """Return how many combinations count as tried before.

    Each counts in each look, by the share of the cases that the look had. So fifty smoke tests over 3 of 300 cases
    count as half a combination. But looks at 50, 200 and 800 cases each make claims, although most of the cases are new
    each time: a look that had a quarter of them, and could claim anything, counts fully for as many combinations as are
    new.

    Args:
        looks: The looks before.
        new: How many combinations are compared now.
    """
    looks = list(looks)
    each = sum(look.share * look.combinations for look in looks)
    claims = (min(1.0, WHOLE * look.share) * min(look.combinations, new) for look in looks if look.cases >= PAIRS)
    return max(each, max(claims, default=0.0))


def spendable(before: float, new: int) -> float:
    """Return the part of 5% that `new` combinations may use after so many others: all of it if they are the first.

    Parts that are used one after the other add up to at most LATER, however many follow. Less than one combination
    before costs in proportion.
    """
    if before < 1:
        return 1 - max(before, 0.0) * (1 - spendable(1, new))
    first, last = math.sqrt(before), math.sqrt(before + max(new, 1))
    return LATER * max(new, 1) / (first * last * (first + last))  # 1 / first - 1 / last, which could round to 0


def share_of_next(earlier: Iterable[EarlierLook], now: int, new: int, cases: int) -> float:
    """Return the part of 5% that a sweep of the same combinations over more cases may use.

    Args:
        earlier: The looks before a sweep.
        now: How many cases it has.
        new: How many combinations it compares.
        cases: How many cases the next one has, these among them.
    """
    part = min(1.0, now / cases)
    looks = [*(replace(look, share=look.share * part) for look in earlier), EarlierLook(part, now, new)]
    return spendable(count_before(looks, new), new)
