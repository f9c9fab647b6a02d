"""Intervals and claims that hold however often they are looked at, and whenever somebody stops because of them.

A figure that is tested at 5% each time it is looked at is wrong far more often than that. A confidence sequence is not:
with 95% it holds the truth at all times together. Where scores are bounded it comes from betting against each candidate
mean (Waudby-Smith & Ramdas 2024): capital that starts at 1 and can only grow where the candidate is wrong reaches 40
in at most 2.5% of sweeps (Ville 1939). Where they are not bounded there is an asymptotic one, as good as its normal
limit (Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas 2024), so it is shown only for many units that are not skewed.

Rows of scores are in the order in which cases were drawn, which has to be random and decided beforehand; a look sees a
prefix of it, never just the cases that happened to finish first.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats, skewness
from wtb.analysis.statistics.paired import SMALLEST_P

_CAUTION = 0.5  # of the capital that may be bet on one case
_STEPS = 24  # of bisection: to a ten millionth of the scale
# Units from which on the normal limit is near enough. Losses that are seldom have to show by then: of 3% of the units
# none is among the first 130 in 2% of sweeps. A smaller level, of more rows, lies further out in the tail.
_LIMIT_FROM, _LIMIT_PER_DOUBLING = 100, 30
_LIMIT_SKEWED = 0.15  # skewness over the root of the units, beyond which it is not near enough
_TUNED = 100  # units at which the asymptotic sequence is narrowest


def bounded(values: Floats, low: float, high: float, alpha: float = 0.05) -> Floats:
    """A confidence sequence for the mean of each row, by betting.

    Args:
        values: rows x units in the order in which they were drawn, all within the bounds, NaN where missing.
        low, high: what no value can pass.
        alpha: how often one may miss the truth at any time, for each row.

    Returns:
        rows x 2, within the bounds.
    """
    bets = _Bets(values, low, high, alpha)
    ends = np.stack([bets.lower(), 1.0 - _Bets(-values, -high, -low, alpha).lower()], axis=1)
    ends.sort(axis=1)  # where the truth was missed, nothing may be left between them
    return np.asarray(low + (high - low) * ends)


def capital(differences: Floats, span: float, alpha: float) -> Floats:
    """The most that betting on a positive mean has won by now, for each row.

    Under a mean of 0 or less it reaches 1 / alpha in at most a share alpha of sweeps, whenever one looks: a claim that
    the mean is positive may be made as soon as it does.

    Args:
        differences: rows x units in the order in which they were drawn, from -span to span, NaN where missing.
        span: the largest difference that there can be.
        alpha: the level at which it is to win soonest.
    """
    bets = _Bets(differences, -span, span, 2 * alpha)
    return np.asarray(np.exp(np.minimum(bets.won(np.full(len(differences), 0.5)), 700.0)))


def claims(differences: Floats, span: float, alpha: float = 0.05, family: int = 0) -> NDArray[np.bool_]:
    """Which rows may be said to have a positive mean; wrong at any time of any of them in at most a share alpha.

    A claim stays: more units never take it back.

    Args:
        differences: rows x units in the order in which they were drawn, from -span to span, NaN where missing.
        span: the largest difference that there can be.
        alpha: of the whole family.
        family: how many claims could be made; 0 for one a row.
    """
    each = max(alpha / max(family, len(differences), 1), SMALLEST_P)
    return np.asarray(capital(differences, span, each) >= 1 / each)


def limit_from(rows: int) -> int:
    """Return from how many units on intervals without bounds are shown, if any of so many rows may be looked at."""
    return _LIMIT_FROM + math.ceil(_LIMIT_PER_DOUBLING * math.log2(max(rows, 1)))


def asymptotic(values: Floats, alpha: float = 0.05, rows: int = 1) -> Floats:
    """A confidence sequence for the mean of each row that holds in the limit of many units; values have no bounds.

    Args:
        values: rows x units, NaN where missing.
        alpha: how often one may miss the truth at any time, for each row.
        rows: how many there are in all, of which any may be looked at.

    Returns:
        rows x 2; NaN for fewer than `limit_from(rows)` units, for skewed values, and without variation.
    """
    alpha, n = max(alpha, SMALLEST_P), np.isfinite(values).sum(axis=1).astype(float)
    bounds = np.full((len(values), 2), np.nan)
    enough = n >= limit_from(rows)
    enough[enough] = skewness(values[enough]) <= _LIMIT_SKEWED  # NaN, without variation, is not
    if enough.any():
        some, count = values[enough], n[enough]
        means, spreads = np.nanmean(some, axis=1), np.nanstd(some, axis=1, ddof=1)
        square = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / _TUNED
        scaled = count * square + 1
        half = spreads * np.sqrt(2 * scaled / (count**2 * square) * np.log(np.sqrt(scaled) / alpha))
        bounds[enough] = np.stack([means - half, means + half], axis=1)
    return bounds


class _Bets:
    """Rows scaled to 0..1, and how much to stake on each unit, decided from those before it."""

    def __init__(self, values: Floats, low: float, high: float, alpha: float) -> None:
        present = np.isfinite(values)
        self.x = np.where(present, np.clip((values - low) / (high - low), 0.0, 1.0), 0.0)
        self.present = present
        alpha = max(alpha, SMALLEST_P)
        self.threshold = math.log(2 / alpha)
        count = present.cumsum(axis=1)
        means = (0.5 + self.x.cumsum(axis=1)) / (count + 1)
        squares = np.where(present, (self.x - means) ** 2, 0.0)
        variance = (0.25 + squares.cumsum(axis=1)) / (count + 1)
        before = np.concatenate([np.full((len(values), 1), 0.25), variance[:, :-1]], axis=1)
        turn = np.maximum(count, 1)
        self.stakes = np.sqrt(2 * math.log(2 / alpha) / (before * turn * np.log1p(turn)))

    def won(self, means: Floats) -> Floats:
        """The logarithm of the most capital by now of betting that each row's mean is higher than the candidate."""
        stakes = np.minimum(self.stakes, _CAUTION / np.maximum(means, 1e-12)[:, None])
        gains = np.log1p(np.where(self.present, stakes * (self.x - means[:, None]), 0.0))
        return np.asarray(gains.cumsum(axis=1).max(axis=1, initial=0.0))

    def lower(self) -> Floats:
        """The highest candidate that betting on more has ruled out: capital falls as the candidate rises."""
        low, high = np.zeros(len(self.x)), np.ones(len(self.x))
        for _ in range(_STEPS):
            middle = (low + high) / 2
            is_out = self.won(middle) >= self.threshold
            low, high = np.where(is_out, middle, low), np.where(is_out, high, middle)
        return low
