"""All combinations under one metric: their means, their differences from the baseline, and whether the best leads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from wtb.statistics.intervals import SKEWED, Floats, Interval, intervals, skewness, wilson
from wtb.statistics.paired import Compare, chance, cleaned, defined, holm, means, paired_tests, subtract
from wtb.statistics.power import PAIRS, cases_needed
from wtb.statistics.shift import shifts

Better = Literal["higher", "lower"]
SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Estimate:
    """One combination under one metric; field for field an entry of `metrics` in the JSON contract.

    `p` is from the two-sided paired test against the baseline, `p_adjusted` the same after Holm's
    correction over all combinations. The baseline itself has no pairs and no difference.
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


@dataclass(frozen=True, slots=True)
class Lead:
    """The best against its runner-up, the row with the next best mean; `lead` is positive where the best is better.

    `cases_needed` is about how many cases in all would settle it; None where it is settled, or nothing can be told. The
    words in `because` say why it is not settled.
    """

    runner_up: int | None = None
    lead: float | None = None
    ci: Interval | None = None
    p: float | None = None
    n_pairs: int = 0
    detectable: float | None = None
    cases_needed: int | None = None
    because: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All combinations under one metric, and the row with the best mean; `clear` if it beats the runner-up.

    `skewed` is how many cases the intervals rest on where skewness makes most of them unreliable, else None.
    """

    rows: tuple[Estimate, ...]
    best: int | None
    clear: bool
    lead: Lead
    skewed: int | None


def compare(
    scores: Floats, *, baseline: int | None = None, better: Better = "higher", by: Compare = "mean", seed: int = 0
) -> Comparison:
    """Estimates for every row of `scores` (combinations x cases), and the best of them.

    `baseline` is the index of a row. by: the figure of the differences between rows that counts. A score that is not
    finite, or beyond 1e100, counts as missing.
    """
    scores = cleaned(scores)
    rates = by == "mean" and is_rate(scores, better)
    deltas = np.full_like(scores, np.nan)
    if baseline is not None:
        deltas = subtract(scores, scores[baseline])
        deltas[baseline] = np.nan
    tested = paired_tests(deltas, seed=seed, rates=rates, compare=by)
    if rates:
        ci = np.array([wilson(float(np.nansum(row)), int(np.isfinite(row).sum())) for row in scores]).reshape(-1, 2)
    else:
        ci = intervals(scores, seed)
    found = means(scores)
    adjusted = holm(np.array([np.nan if row.p is None else row.p for row in tested]))
    columns = (np.isfinite(scores).sum(axis=1).tolist(), tested, *map(defined, (found, ci, adjusted)))
    rows = tuple(
        Estimate(n, row.n, mean, interval, row.delta, row.ci, row.p, corrected, row.effect, row.detectable)
        for n, row, mean, interval, corrected in zip(*columns, strict=True)
    )
    ranked = np.where(np.isnan(found), -np.inf, found if better == "higher" else -found)
    best = int(np.argmax(ranked)) if np.isfinite(ranked).any() else None
    leads = _Leads(better, rates, by, seed)
    clear, lead = leads.of(scores, ranked, best)
    return Comparison(rows, best, clear, lead, None if rates or by == "median" else _skewed(scores))


def is_rate(scores: Floats, better: str) -> bool:
    """Whether all scores are 0 or 1. A cost of 0, or 1 node run, in every case is a constant, not a rate."""
    found = np.unique(scores[np.isfinite(scores)])
    return bool(np.isin(found, (0, 1)).all()) and (better == "higher" or found.size == 2)


def _skewed(scores: Floats) -> int | None:
    found = skewness(scores)
    if not np.isfinite(found).any() or np.nanmedian(found) <= SKEWED:
        return None
    return int(np.median(np.isfinite(scores).sum(axis=1)[np.isfinite(found)]))


@dataclass(frozen=True)
class _Leads:
    """How the best of some rows is held against the others."""

    better: Better
    rates: bool
    by: Compare
    seed: int

    def of(self, scores: Floats, ranked: Floats, best: int | None) -> tuple[bool, Lead]:
        """Whether the best beats the runner-up, or each of several that share its place, and the facts of the closest.

        Comparing only with the runner-up needs no correction for having picked the best (Hung & Fithian 2019, rank
        verification).
        """
        rivals = np.isfinite(ranked) & (np.arange(ranked.size) != best)
        if best is None:
            return False, Lead(because="nothing is scored")
        if not rivals.any():
            return False, Lead(because="only one combination is scored")
        runners_up = np.flatnonzero(rivals & (ranked == ranked[rivals].max()))
        leads = subtract(scores[best], scores[runners_up])
        leads = leads if self.better == "higher" else -leads
        p, lead = chance(leads, self.seed, self.by), shifts(leads)[0] if self.by == "median" else means(leads)
        clear = bool((lead > 0).all() and (p < SIGNIFICANT).all())
        closest = int(np.argmax(np.where(np.isnan(p), np.inf, np.where(lead > 0, p, 2.0))))
        (found,) = paired_tests(leads[[closest]], seed=self.seed, rates=self.rates, compare=self.by)
        facts = (int(runners_up[closest]), found.delta, found.ci, found.p, found.n, found.detectable)
        if clear:
            return True, Lead(*facts)
        needed = None
        if found.delta is not None and found.delta > 0 and found.spread is not None:
            needed = max(cases_needed(found.delta, found.spread, rates=self.rates), found.n + 1)
        return False, Lead(*facts, needed, _because(leads[closest], found.delta))


def _because(leads: Floats, lead: float | None) -> str:
    """Why the best is not clearly ahead, in words."""
    pairs, differ = int(np.isfinite(leads).sum()), int((np.nan_to_num(leads) != 0).sum())
    if pairs < 2:
        return "they have only one case in common" if pairs else "they have no case in common"
    if differ == 0:
        return f"they score the same in all {pairs:,} cases that both have"
    if lead is not None and lead <= 0:
        return "the runner-up is not behind over the cases that both have"
    if differ < PAIRS:
        cases = "one case differs" if differ == 1 else f"{differ} cases differ"
        return f"only {cases} between them, too few to tell"
    return "that could be chance"
