"""Agreement of raters beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number, each with an interval.

Both are functions of counts of pairs of levels, summed over what was rated. Their errors are those of the jackknife
over units, or over clusters of units (Efron & Stein 1981): one that left out a unit at a time. Neither coefficient can
leave -1 to 1, so the interval is made on Fisher's scale, artanh, and transformed back (Lin, "A concordance correlation
coefficient to evaluate reproducibility", 1989, for kappa by squares; https://doi.org/10.2307/2532051). It rests on the
ratings that are not the most common one: below FEWEST_RARER of them a rater there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import ROUNDING, Floats, Interval, t_quantile
from wtb.core.classes.frozen import frozen

Scale = Literal["nominal", "ordinal", "interval"]
Integers = NDArray[np.int64]
FEWEST_RARER = 15
UNKNOWN: Interval = (math.nan, math.nan)


@frozen
class Agreement:
    """A coefficient: 1 where raters always agree, 0 where they agree as often as chance has it.

    Attributes:
        value: The coefficient; NaN where it is not defined, since only one level was given.
        interval: Of 95%; NaN where nothing is known of how far off it could be.
        units: How many were rated by two raters or more.
        rarer: How many ratings of a rater, on average, are not the most common one.
    """

    value: float
    interval: Interval
    units: int
    rarer: int

    @property
    def because(self) -> str | None:
        """Why there is no interval, if the reason is that one rating is too common."""
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
    """Return how far two raters agree.

    Args:
        first, second: What each said of each unit; NaN where nothing.
        scale: `nominal` counts any disagreement alike, `ordinal` by the number of levels between and `interval` by the
            square of the distance (Cohen 1968).
        clusters: The cluster of each unit; by default each is one of its own.
        weights: What each unit counts; by default all count alike.

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
    """Return how far any number of raters agree, each of whom may have left units out.

    Args:
        ratings: Raters x units, NaN where there is no rating.
        scale: What the levels are.
        clusters: The cluster of each unit; by default each is one of its own.
        weights: What each unit counts, 1 on average; by default all count alike.

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
    """Count the ratings of a rater that are not the most common one. ratings: of each level, by all raters."""
    total = float(ratings.sum())
    return int((total - float(ratings.max(initial=0))) * units / total) if total else 0


def _coefficient(observed: float, by_chance: float) -> float:
    """One less the disagreement that was observed as a share of what chance has; NaN where chance has none."""
    return math.nan if by_chance <= ROUNDING else float(1 - observed / by_chance)


def _distance(levels: Floats, scale: Scale) -> Floats:
    apart: Floats = levels[:, None] - levels[None, :]
    return (apart != 0).astype(np.float64) if scale == "nominal" else apart**2


def _ranks_apart(levels: Floats) -> Floats:
    ranks = np.arange(len(levels), dtype=np.float64)
    apart: Floats = np.abs(ranks[:, None] - ranks[None, :])
    return apart


def _ordinal_distance(totals: Floats) -> Floats:
    """The square of how many ratings lie between two levels, half of those at the ends (Krippendorff 2011)."""
    middles = np.cumsum(totals) - totals / 2
    squares: Floats = (middles[:, None] - middles[None, :]) ** 2
    return squares


def _jackknifed(
    coefficient: Callable[[Floats], float], tables: Floats, clusters: Integers | None, rarer: int
) -> Agreement:
    """A coefficient of the sum of tables, one of each unit, with the interval of leaving out a cluster at a time."""
    total = tables.sum(axis=0)
    value = coefficient(total) if len(tables) else math.nan
    nothing = Agreement(value, UNKNOWN, len(tables), rarer)
    if rarer < FEWEST_RARER:
        return nothing
    if clusters is not None:
        _, codes = np.unique(clusters, return_inverse=True)
        grouped = np.zeros((int(codes.max(initial=-1)) + 1, *tables.shape[1:]))
        np.add.at(grouped, codes, tables)
    else:
        grouped = tables
    n = len(grouped)
    without = np.array([coefficient(total - table) for table in grouped])
    if n < 2 or not np.isfinite(without).all():
        return nothing
    spread = math.sqrt((n - 1) / n * float(((without - without.mean()) ** 2).sum()))
    slope = 1 - value**2  # of tanh where it is the coefficient
    if min(spread, slope) <= ROUNDING:
        return nothing
    middle, half = math.atanh(value), t_quantile(n - 1) * spread / slope
    return Agreement(value, (math.tanh(middle - half), math.tanh(middle + half)), len(tables), rarer)
