"""Which rows could be the best: a set that holds the true best, ranks, and the figures of a row chosen as the best.

All of it rests on one set of random signs, one sign for each unit (case or cluster) and the same for all rows, since
rows share their units and what one row's luck says of another's must not be lost (Westfall & Young 1993). A row could
be the best unless another one beats it by more than the largest of that many differences does by chance: multiple
comparisons with the best (Hsu 1981), by resampling, with a spread of its own for every pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import NORMAL, Floats, Z
from wtb.analysis.statistics.paired import flips

FLIPS = 1_999
LEVEL = 0.975  # one-sided, so that of two rows one alone is left exactly where the paired test has p < 0.05
_SAME = 1e-9  # of the largest spread: rows that differ by less never differ


@dataclass(frozen=True, slots=True)
class Ranking:
    """What can be said of the order of rows.

    Attributes:
        candidates: whether each row could be the best; holds the true best in at least 95% of sweeps.
        ranks: rows x 2, the first and the last place (from 1) that a row could have, each right in at least 95%.
    """

    candidates: NDArray[np.bool_]
    ranks: NDArray[np.int64]


def rank(scores: Floats, seed: int) -> Ranking:
    """Hold every row against every other.

    Args:
        scores: rows x units, complete, higher is better; at least one row.
        seed: of the random signs.
    """
    rows, units = scores.shape
    centred = scores - scores.mean(axis=0)  # differences between rows stay as they are, and lose less to rounding
    totals, gram = centred.sum(axis=1), centred @ centred.T
    squares = np.diag(gram)
    spread = np.sqrt(np.maximum(squares[:, None] + squares - 2 * gram, 0.0))
    spread[spread <= _SAME * math.sqrt(float(squares.max()) or 1.0)] = np.inf  # nothing beats what it always equals
    sums = flips(units, FLIPS, np.random.default_rng([abs(seed), 3])) @ centred.T
    limits = np.empty(rows)
    for row in range(rows):
        # Signs are symmetric: what a row falls behind by chance is also what it gets ahead.
        limits[row] = np.quantile(((sums - sums[:, [row]]) / spread[row]).max(axis=1), LEVEL)
    ahead = (totals[:, None] - totals) / spread  # of row i before row j
    return Ranking(
        candidates=~(ahead > limits).any(axis=0),
        ranks=np.stack([1 + (ahead > limits).sum(axis=0), rows - (ahead > limits[:, None]).sum(axis=1)], axis=1),
    )


def chosen_level(scores: Floats, seed: int) -> float:
    """The normal quantile at which the lower end of the mean of a row, chosen as the best, covers in 97.5%.

    Of many rows the one with the highest mean was most likely lucky. The quantile is that of the luckiest of them all,
    under the correlation that they have; 1.96 for one row, or for rows that always agree.

    Args:
        scores: rows x units, complete, higher is better.
        seed: of the random signs.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    sizes = np.sqrt((centred**2).sum(axis=1))
    centred = centred[sizes > _SAME * (float(sizes.max()) or 1.0)]
    if len(centred) < 2:
        return Z
    centred /= np.sqrt((centred**2).sum(axis=1, keepdims=True))
    sums = flips(centred.shape[1], FLIPS, np.random.default_rng([abs(seed), 4])) @ centred.T
    share = float((sums > np.quantile(sums.max(axis=1), LEVEL)).mean())
    return max(Z, NORMAL.inv_cdf(1 - max(share, 1e-9)))


def shrunken(scores: Floats) -> Floats:
    """The means of rows, drawn towards their middle by as much as they differ by chance.

    Empirical Bayes (Efron & Morris 1973). A row that was chosen for its mean is overestimated by it; this is not. NaN
    where a row cannot be told from noise
    for want of units.

    Args:
        scores: rows x units, complete.
    """
    rows, units = scores.shape
    means = scores.mean(axis=1)
    if rows < 2 or units < 2:
        return np.full(rows, np.nan)
    noise = (scores - scores.mean(axis=0)).var(axis=1, ddof=1) / units * rows / (rows - 1)
    between = max(0.0, float(means.var(ddof=1)) - float(noise.mean()))
    share = between / (between + noise) if between > 0 else np.zeros(rows)
    return np.asarray(means.mean() + share * (means - means.mean()))
