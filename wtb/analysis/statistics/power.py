"""What a number of pairs can show: how large an effect is, the smallest that shows, and how many would show it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import NORMAL, Floats, Z, is_constant, t_quantile

POWER = 0.8
PAIRS = 6  # fewer cannot give p < 0.05, whatever they show: 2 / 2**5 = 0.0625
_Z_POWER = NORMAL.inv_cdf(POWER)


def spreads(differences: Floats) -> Floats:
    """Standard deviation of each row of paired differences; NaN for fewer than two, and without variation."""
    found = np.full(len(differences), np.nan)
    for i, row in enumerate(differences):
        row = row[np.isfinite(row)]
        if row.size >= 2 and not is_constant(row):
            found[i] = row.std(ddof=1)
    return found


def detectable(spreads: Floats, counts: Floats, is_rate: NDArray[np.bool_], family: int = 1) -> Floats:
    """The smallest true difference of each row that its pairs show, 80 times of 100, at p < 0.05 after correction.

    Args:
        spreads: standard deviation of the differences of each row.
        counts: how many pairs each has.
        is_rate: whether scores are 0 and 1, whose exact test jumps from one difference to the next, which costs about
            one case (the continuity correction of McNemar's test).
        family: how many tests are corrected over; where one row alone differs, its p has to pass all of it (Holm).

    Returns:
        One a row; NaN without variation, and for pairs too few to show any.
    """
    z = NORMAL.inv_cdf(1 - 0.025 / max(family, 1))
    found = np.full(len(spreads), math.nan)
    for i, n in enumerate(counts.astype(int).tolist()):
        if n >= PAIRS and 2.0 ** (1 - n) * family <= 0.05:
            found[i] = (
                _rise(float(spreads[i]), n, z) if is_rate[i] else spreads[i] * _noncentrality(n, z) / math.sqrt(n)
            )
    return found


def _noncentrality(n: int, z: float) -> float:
    """The true mean of n pairs, in standard errors, whose t passes z with 80% (Johnson & Welch 1940)."""
    t = t_quantile(n - 1, z)
    return t * (1 - 1 / (4 * (n - 1))) + _Z_POWER * math.sqrt(1 + t * t / (2 * (n - 1)))


def _rise(spread: float, n: int, z: float) -> float:
    """The same for rates: their test knows how many cases differ, not how many more of them rise than fall."""
    rise = 0.0
    for _ in range(50):
        rise = (z * math.sqrt(spread**2 + rise**2) + _Z_POWER * spread) / math.sqrt(n) + 1 / n
    return rise if rise <= 1 else math.nan


def cases_needed(lead: float, spread: float, *, rates: bool = False, level: float = 0.05) -> int:
    """About how many pairs show a true difference of `lead` 80 times of 100 (Guenther 1981), at least PAIRS."""
    z = Z if level == 0.05 else NORMAL.inv_cdf(1 - level / 2)
    root = (z + _Z_POWER) * spread / lead
    if rates:  # the root of n at which lead - 1 / n is detectable
        root = (root + math.sqrt(root**2 + 4 / lead)) / 2
    return max(PAIRS, math.ceil(root**2 + z * z / 2))
