"""What a number of pairs can show: how large an effect is, the smallest that shows, and how many would show it."""

from __future__ import annotations

import math

import numpy as np

from wtb.statistics.intervals import NORMAL, Floats, Z, is_constant, t_quantile

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


def detectable(spreads: Floats, counts: Floats, *, rates: bool = False) -> Floats:
    """The smallest true difference that so many pairs with such a spread show, 80 times of 100, at p < 0.05.

    NaN without variation, and for pairs too few to show any. rates: of 0 and 1, whose exact test jumps from one
    difference to the next, which costs about one case (the continuity correction of McNemar's test).
    """
    found = spreads.copy()
    for i, n in enumerate(counts.astype(int).tolist()):
        factor = t_quantile(n - 1) + t_quantile(n - 1, _Z_POWER) if n >= PAIRS else math.nan
        found[i] = found[i] * factor / math.sqrt(max(n, 1)) + (1 / max(n, 1) if rates else 0.0)
    return found


def cases_needed(lead: float, spread: float, *, rates: bool = False) -> int:
    """About how many pairs show a true difference of `lead` 80 times of 100 (Guenther 1981), at least PAIRS."""
    root = (Z + _Z_POWER) * spread / lead
    if rates:  # the root of n at which lead - 1 / n is detectable
        root = (root + math.sqrt(root**2 + 4 / lead)) / 2
    return max(PAIRS, math.ceil(root**2 + Z * Z / 2))
