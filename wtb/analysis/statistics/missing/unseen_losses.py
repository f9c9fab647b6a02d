"""Losses too rare to show in so many cases, which would cancel gains that are all small.

A row that is better by 0.05 in every case seen may lose the whole scale in one case of 30. Of n cases none shows such a
loss with more than 5% where it is rarer than 3 / n (the rule of three; Hanley & Lippman-Hand 1983). So if no gain seen
is as large as the scale times 3 / n, no test can tell the gains from nothing. The same holds for losses and rare gains.
"""

from __future__ import annotations

import math

import numpy as np

from wtb.analysis.statistics.intervals import ROUNDING, SKEWED, Floats, Interval, skewness

RULE_OF_THREE = 3.0
MUCH = 0.4  # of all differences, by the largest tenth of them; of normal ones it makes 0.26


def span_of(ends: Interval | None) -> float | None:
    """Return how far two scores can be apart; None where nothing limits it."""
    if ends is None or not math.isfinite(ends[1] - ends[0]) or ends[1] <= ends[0]:
        return None
    return ends[1] - ends[0]


def could_cancel(differences: Floats, span: float | None, *, side: int, units: int | None = None) -> bool:
    """Return whether a rare difference on the other side, which none of the cases shows, could cancel all seen ones.

    Args:
        differences: By case; NaN where there is none.
        span: How far two scores can be apart; None where nothing limits it: then nothing is known.
        side: 1 where a rise is claimed, -1 where it is a fall.
        units: How many units of evidence the cases are; by default each is one.
    """
    observed = differences[np.isfinite(differences)]
    count = observed.size if units is None else units
    if span is None or not count:
        return False
    largest = float((side * observed).max())
    return 0 < largest < span * RULE_OF_THREE / count * (1 - ROUNDING)


def one_in(cases: int) -> int:
    """Return n where differences rarer than 1 in n cases cannot show in so many cases."""
    return max(1, math.ceil(cases / RULE_OF_THREE))


def p_of_unseen(differences: Floats, span: float, *, side: int) -> float:
    """Return the chance that no case shows a difference of the whole scale that would cancel the largest one seen."""
    observed = differences[np.isfinite(differences)]
    return float((1 - (side * observed).max() / span) ** observed.size)


def uneven(differences: Floats) -> list[int]:
    """Return rows of differences of which few cases make much, so that intervals and p may be off.

    Args:
        differences: Rows x units; NaN where there is none.
    """
    skewed = np.flatnonzero(skewness(differences) > SKEWED).tolist()
    return [row for row in skewed if _part_of_largest(differences[row]) >= MUCH]


def _part_of_largest(differences: Floats) -> float:
    """Return which part of all differences, without their signs, the largest tenth of them makes."""
    sizes = np.sort(np.abs(differences[np.isfinite(differences)]))[::-1]
    return float(sizes[: math.ceil(sizes.size / 10)].sum() / sizes.sum())
