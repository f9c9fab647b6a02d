"""Agreement of raters beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number, each with an interval.

Both are functions of counts of pairs of levels, summed over the rated units. Their errors are those of the jackknife
over units, or over clusters of units (Efron & Stein 1981), which leaves out one at a time. Neither coefficient can
leave -1 to 1, so the interval is computed on Fisher's scale, artanh, and transformed back (Lin, "A concordance
correlation coefficient to evaluate reproducibility", 1989, for kappa by squares; https://doi.org/10.2307/2532051). It
depends on the ratings that are not the most common one: with fewer than FEWEST_RARER of them per rater there is no
interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval, t_quantile
from wtb.core.frozen import frozen

Scale = Literal["nominal", "ordinal", "interval"]
Integers = NDArray[np.int64]
FEWEST_RARER = 15
UNKNOWN: Interval = (math.nan, math.nan)


@frozen
class Agreement:
    """A coefficient: 1 if raters always agree, 0 if they agree as often as by chance.

    Attributes:
        value: The coefficient; NaN if it is undefined because only one level was given.
        interval: The 95% interval; NaN if the error is unknown.
        units: How many units were rated by at least two raters.
        rarer: How many ratings of a rater, on average, are not the most common one.
    """

    value: float
    interval: Interval
    units: int
    rarer: int

    @property
    def because(self) -> str | None:
        """Reason why there is no interval, if one rating is too common."""
        if math.isnan(self.value) or self.rarer >= FEWEST_RARER:
            return None
        ratings = "1 rating is" if self.rarer == 1 else f"{self.rarer:,} ratings of a rater are"
        return f"{ratings} not the most common one: there is no interval below {FEWEST_RARER}"


def cohens_kappa(
    first: Floats,
    second: Floats,
    scale: Scale = "nominal",
    clusters: Integers | None = None,
    weights: Floats | None = None,
) -> Agreement:
    """Return the agreement of two raters.

    Args:
        first: The ratings of one rater by unit; NaN for no rating.
        second: The ratings of the other.
        scale: `nominal` counts any disagreement alike, `ordinal` by the number of levels between and `interval` by the
            square of the distance (Cohen 1968).
        clusters: The cluster of each unit; by default each unit is its own.
        weights: The weight of each unit; by default all are equal.

    Returns:
        Cohen's kappa (Cohen 1960).
    """
    both = np.isfinite(first) & np.isfinite(second)
    levels, codes = np.unique(np.stack([first[both], second[both]]), return_inverse=True)
    codes = codes.reshape(2, -1)
    tables = np.zeros((int(both.sum()), len(levels), len(levels)))
    tables[np.arange(len(tables)), codes[0], codes[1]] = 1.0 if weights is None else weights[both]
    distance = _ranks_apart(levels) if scale == "ordinal" else _distance(levels, scale)

    def kappa(table: Floats) -> float:
        total = table.sum()
        by_chance = np.outer(table.sum(axis=1), table.sum(axis=0)) / max(total, 1.0)
        return _coefficient((distance * table).sum(), (distance * by_chance).sum())

    rarer = _rarer(np.bincount(codes.ravel(), minlength=1), len(tables))
    return _jackknifed(kappa, tables, None if clusters is None else clusters[both], rarer)


def krippendorffs_alpha(
    ratings: Floats, scale: Scale = "nominal", clusters: Integers | None = None, weights: Floats | None = None
) -> Agreement:
    """Return the agreement of any number of raters, who may have left out units.

    Args:
        ratings: Raters x units, NaN for no rating.
        scale: The scale of the levels.
        clusters: The cluster of each unit; by default each unit is its own.
        weights: The weight of each unit, 1 on average; by default all are equal.

    Returns:
        Krippendorff's alpha (Krippendorff, "Computing Krippendorff's alpha-reliability", 2011).
    """
    rated = np.isfinite(ratings)
    pairable = rated.sum(axis=0) >= 2
    ratings, rated = ratings[:, pairable], rated[:, pairable]
    levels = np.unique(ratings[rated])
    counts = (ratings[:, :, None] == levels).sum(axis=0).astype(np.float64)  # units x levels
    pairs = counts[:, :, None] * counts[:, None, :]
    diagonal = np.arange(len(levels))
    pairs[:, diagonal, diagonal] -= counts
    coincidences = pairs / np.maximum(counts.sum(axis=1) - 1, 1)[:, None, None]
    if weights is not None:
        coincidences *= weights[pairable][:, None, None]

    def alpha(table: Floats) -> float:
        totals = table.sum(axis=0)
        distance = _ordinal_distance(totals) if scale == "ordinal" else _distance(levels, scale)
        by_chance = (distance * np.outer(totals, totals)).sum() / max(totals.sum() - 1, 1.0)
        return _coefficient((distance * table).sum(), by_chance)

    rarer = _rarer(counts.sum(axis=0), len(counts))
    return _jackknifed(alpha, coincidences, None if clusters is None else clusters[pairable], rarer)


def _rarer(ratings: NDArray[Any], units: int) -> int:
    """Count the ratings of a rater that are not the most common one. `ratings` counts each level over all raters."""
    total = float(ratings.sum())
    return int((total - float(ratings.max(initial=0))) * units / total) if total else 0


def _coefficient(observed: float, by_chance: float) -> float:
    """Return one minus the observed disagreement as a share of the expected one; NaN if none is expected."""
    return math.nan if by_chance <= ROUNDING else float(1 - observed / by_chance)


def _distance(levels: Floats, scale: Scale) -> Floats:
    apart: Floats = levels[:, None] - levels[None, :]
    return (apart != 0).astype(np.float64) if scale == "nominal" else apart**2


def _ranks_apart(levels: Floats) -> Floats:
    ranks = np.arange(len(levels), dtype=np.float64)
    apart: Floats = np.abs(ranks[:, None] - ranks[None, :])
    return apart


def _ordinal_distance(totals: Floats) -> Floats:
    """Return the squared number of ratings between two levels, half of those at the ends (Krippendorff 2011)."""
    middles = np.cumsum(totals) - totals / 2
    squares: Floats = (middles[:, None] - middles[None, :]) ** 2
    return squares


def jackknife_error(without: Floats) -> float:
    """Return the standard error of an estimate, given those without one unit each."""
    n = len(without)
    return math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))


def _jackknifed(
    coefficient: Callable[[Floats], float], tables: Floats, clusters: Integers | None, rarer: int
) -> Agreement:
    """Return a coefficient of the sum of tables, one for each unit, with its jackknife interval over clusters."""
    total = tables.sum(axis=0)
    agreement = coefficient(total) if len(tables) else math.nan
    nothing = Agreement(agreement, UNKNOWN, len(tables), rarer)
    if rarer < FEWEST_RARER:
        return nothing
    grouped = tables
    if clusters is not None:
        names, codes = np.unique(clusters, return_inverse=True)
        grouped = np.zeros((len(names), *tables.shape[1:]))
        np.add.at(grouped, codes, tables)
    n = len(grouped)
    without = np.array([coefficient(total - table) for table in grouped])
    # Without one unit the coefficient may be undefined; an error from the rest would be too small.
    if n < 2 or not np.isfinite(without).all():
        return nothing
    spread = jackknife_error(without)
    slope = 1 - agreement**2  # of tanh where it is the coefficient
    if min(spread, slope) <= ROUNDING:
        return nothing
    middle, half = math.atanh(agreement), t_quantile(n - 1) * spread / slope
    return Agreement(agreement, (math.tanh(middle - half), math.tanh(middle + half)), len(tables), rarer)
