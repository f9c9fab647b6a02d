"""The next step if no row is clearly the best: the cases that would settle it, and the most that is at stake.

The numbers of cases are conditional: they hold if the leads that were seen are real, which a sweep that settles nothing
cannot promise. So the bound on the differences between the candidates stands beside them.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats, intervals, rate_difference, tail_quantile
from wtb.analysis.statistics.paired import Tested
from wtb.analysis.statistics.power.pairs import pairs_needed
from wtb.analysis.statistics.units import Units, by_unit, differences_by_unit
from wtb.core.classes.frozen import frozen

_FAR = 50  # times the cases that there are: more than anybody will run


@frozen(slots=True)
class NextStep:
    """The next step towards the best of the candidates.

    Attributes:
        cases: About how many cases in all settle it, 80 times of 100, if every lead of the best is as large as it was
            seen; None where a lead is 0, or if that is beyond 50 times the cases.
        cases_if_half: The same if the leads are half as large.
        differ_at_most: By how much two candidates may differ, with 95% confidence in all of them; None if unknown.
    """

    cases: int | None = None
    cases_if_half: int | None = None
    differ_at_most: float | None = None


@frozen
class Leads:
    """The leads of the best over the other candidates.

    Attributes:
        table: Candidates x cases, complete.
        tested: The test of each.
        rates: Which of them are of scores that are 0 and 1.
        units: The cluster of each case; None where each is one of its own.
        are_means: Whether they are compared by the mean of their scores.
        width: How far apart two scores can be.
    """

    table: Floats
    tested: Sequence[Tested]
    rates: NDArray[np.bool_]
    units: Units
    are_means: bool
    width: float = math.inf


def next_step(leads: Leads, level: Callable[[int], float]) -> NextStep:
    """Plan the next step.

    Args:
        leads: Those of the sweep that settled nothing.
        level: At which the test of each lead has to reject in a sweep of so many cases: it is a further look at these.
    """
    effects = np.array([test.delta or 0.0 for test in leads.tested])
    spreads = np.array([math.nan if test.spread is None else test.spread for test in leads.tested])
    cases = half = None
    if (effects > 0).all() and np.isfinite(spreads).all():
        cases, half = (_cases(leads, effects * part, spreads, level) for part in (1.0, 0.5))
    return NextStep(cases, half, _differ_at_most(leads))


def _cases(leads: Leads, effects: Floats, spreads: Floats, level: Callable[[int], float]) -> int | None:
    each, cases = differences_by_unit(leads.table, leads.units), leads.table.shape[1]
    correlation = np.atleast_2d(np.corrcoef(each))
    rates = leads.rates if leads.units is None else None

    def quantile(number: int) -> float:
        return tail_quantile(level(number) / 2)

    # The more cases are new, the less a look at the old ones costs: between its ends the root grows with the quantile.
    ends = np.array([quantile(_FAR * cases), quantile(cases)])
    roots = [pairs_needed(effects, spreads, z, correlation, rates=rates) ** 0.5 for z in ends.tolist()]

    def lacks(number: int) -> bool:
        return bool(number * each.shape[1] / cases < np.interp(quantile(number), ends, roots) ** 2)

    if lacks(_FAR * cases):
        return None
    return bisect(range(_FAR * cases), x=False, lo=cases + 1, key=lambda number: not lacks(number))


def _differ_at_most(leads: Leads) -> float | None:
    """Bound the difference of any two candidates by intervals of all leads that hold together (Bonferroni)."""
    count = len(leads.table)
    if leads.are_means:
        z = tail_quantile(0.025 / count)
        ends = intervals(by_unit(leads.table, leads.units), z)
        if leads.units is None:
            ends[leads.rates] = rate_difference(leads.table[leads.rates], z)
        ends[(leads.table == 0).all(axis=1) & np.isnan(ends[:, 0])] = 0.0
    else:  # their intervals have one level
        ends = (
            np.array([test.ci or (math.nan, math.nan) for test in leads.tested])
            if count == 1
            else np.full((1, 2), math.nan)
        )
    if np.isnan(ends).any():
        return None
    lows, highs = np.minimum(ends[:, 0], 0.0), np.maximum(ends[:, 1], 0.0)
    of_others = [highs[place] - np.delete(lows, place).min() for place in range(count) if count > 1]
    widest = float(max(highs.max(), -lows.min(), *of_others))
    return min(widest, leads.width, 1.0 if leads.rates.all() else math.inf)
