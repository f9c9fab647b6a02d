"""Intervals of means (docs/simulated.md has their coverage), and the units they are over: cases, or clusters of cases.

- Pass rates: Wilson (1927); their paired differences: Bonett & Price (2012).
- Everything else: the hull of Student's t interval and of Hall's (1992), which removes the skewness from t. Student's
is right for heavy tails and ties, where corrections for skewness follow noise; Hall's for skewed scores, where t is too
short. Of the simulated methods only the hull covers in both, and it needs no resampling. The BCa bootstrap covered less
than t under heavy tails and ties, and less than Hall's under skewness.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]
RESAMPLES = 9_999  # random signs: the smallest p of a sampled test is 1 / 10,000
SKEWED, SKEWED_FROM = 0.3, 5  # beyond this skewness / sqrt(cases) no method here covers 92% of lognormal means
ROUNDING = 1e-12  # relative; a smaller difference comes from floating point, not from the workflow
NORMAL = NormalDist()
Z = NORMAL.inv_cdf(0.975)
ONE_SIDED = NORMAL.inv_cdf(0.95)
# Student's t at 97.5% for 1 to 18 degrees of freedom; beyond, the series of `t_quantile` is exact to 1e-6.
_T = (
    12.7062047, 4.3026527, 3.1824463, 2.7764451, 2.5705818, 2.4469119, 2.3646243, 2.3060041, 2.2621572,
    2.2281389, 2.2009852, 2.1788128, 2.1603687, 2.1447867, 2.1314495, 2.1199053, 2.1098156, 2.1009220,
)  # fmt: skip
_SYMMETRIC = 1e-6  # less skewness than this leaves t as it is
_BLOCK = 1 << 18  # entries of a table that are looked at together (2 MB)
_CHUNK = 1 << 20  # entries of a resampling matrix held at once (8 MB)


def intervals(values: Floats, z: float = Z) -> Floats:
    """Return an interval (low, high) for the mean of each row.

    Args:
        values: Rows x cases, NaN where missing.
        z: The normal quantile of the level; 1.96 gives 95%.

    Returns:
        Rows x 2; NaN for fewer than two cases, and without variation, because the error is unknown then.
    """
    ends = np.full((len(values), 2), np.nan)
    for i, row in enumerate(values):
        row = row[np.isfinite(row)]
        if row.size >= 2 and not is_constant(row):
            ends[i] = _hull(row, z)
    return ends


def upper_ends(values: Floats, z: Floats) -> Floats:
    """Return the upper end of the interval of each row of complete values, at its own level.

    Args:
        values: rows x cases.
        z: the normal quantile of each; 1.64 leaves 5% above.

    Returns:
        One end a row; NaN for fewer than two cases, and without variation.
    """
    ends = [
        _hull(row, level)[1] if row.size >= 2 and not is_constant(row) else math.nan
        for row, level in zip(values, z.tolist(), strict=True)
    ]
    return np.array(ends)


def wilson(successes: float, n: float, z: float = Z) -> Interval:
    """Return Wilson's score interval for a proportion (Wilson 1927); NaN for fewer than two trials."""
    if n < 2:
        return math.nan, math.nan
    rate, spread = successes / n, z * z / n
    middle = (rate + spread / 2) / (1 + spread)
    half = z * math.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    return 0.0 if successes == 0 else middle - half, 1.0 if successes == n else middle + half


def rate_difference(differences: Floats, z: float = Z) -> Floats:
    """Return an interval for the difference of two paired rates (Bonett & Price 2012), for each row of -1, 0 and 1."""
    n = np.isfinite(differences).sum(axis=1)
    better = ((differences > 0).sum(axis=1) + 1) / (n + 2)
    worse = ((differences < 0).sum(axis=1) + 1) / (n + 2)
    middle = better - worse
    half = z * np.sqrt((better + worse - middle**2) / (n + 2))
    ends: Floats = np.clip(np.stack([middle - half, middle + half], axis=1), -1.0, 1.0)
    ends[n < 2] = np.nan
    return ends


def tail_quantile(tail: float) -> float:
    """Return the normal quantile of an upper tail, however small: 1 - tail could round to 1."""
    return -NORMAL.inv_cdf(min(max(tail, sys.float_info.min), 1 - sys.float_info.epsilon))


def logistic(odds: float) -> float:
    """Return the probability of odds on the logarithmic scale, however large they are."""
    return (1 + math.tanh(odds / 2)) / 2


def skewness(values: Floats, *, signed: bool = False) -> Floats:
    """Return how much skewness spoils the interval of each row: its third standardised moment over the root of its
    cases.

    NaN for fewer than SKEWED_FROM cases, which are too few to estimate it, and without variation. If `signed`, it is
    negative if the low values are the rare ones.
    """
    skews = np.full(len(values), np.nan)
    for i, row in enumerate(values):
        row = row[np.isfinite(row)]
        if row.size >= SKEWED_FROM and not is_constant(row):
            skews[i] = _moments(row)[1] / math.sqrt(row.size)
    return skews if signed else np.abs(skews)


def is_constant(row: Floats) -> bool:
    """Return whether finite values differ by no more than rounding."""
    return bool(np.ptp(row) <= ROUNDING * np.max(np.abs(row)))


def t_quantile(freedom: int, z: float = Z) -> float:
    """Return Student's t quantile for a normal quantile z (Cornish-Fisher; Abramowitz & Stegun 1964, 26.7.5)."""
    if z == Z and freedom <= len(_T):
        return _T[freedom - 1]
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return math.fsum([z, *(term / freedom ** (power + 1) for power, term in enumerate(terms))])


def chunks(cases: int) -> Iterator[int]:
    """Yield how many of RESAMPLES draws are held in memory at once."""
    step = max(1, _CHUNK // cases)
    return (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))


def row_blocks(shape: tuple[int, ...]) -> Iterator[slice]:
    """Yield the rows of a table that are processed together, so that temporary arrays stay small beside the table."""
    step = max(1, _BLOCK // max(1, shape[1]))
    return (slice(start, start + step) for start in range(0, shape[0], step))


def transformed_t(row: Floats) -> float:
    """Return Student's t of a row against 0 with the skewness removed (Hall 1992), in units of sqrt(cases)."""
    spread, skew = _moments(row)
    t = float(row.mean()) / spread
    return t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / (6 * row.size)


def _moments(row: Floats) -> tuple[float, float]:
    """Return the standard deviation (n - 1) and skewness (n) of a row that varies."""
    centred = row - row.mean()
    scale = float(np.abs(centred).max())
    # Scaling to 1 first keeps the third power from overflow and underflow.
    centred /= scale
    variance = float((centred**2).mean())
    skew = float((centred**3).mean()) / variance**1.5
    return scale * math.sqrt(variance * row.size / (row.size - 1)), skew


def _hull(row: Floats, z: float) -> Interval:
    """Return the hull of Student's interval and of Hall's, which inverts his cubic transformation of t at its
    quantiles.
    """
    n, mean = row.size, float(row.mean())
    spread, skew = _moments(row)
    half = t_quantile(n - 1, z) / math.sqrt(n)
    ends = [-half, half]
    if abs(skew) > _SYMMETRIC:
        ends += [3 / skew * (math.cbrt(1 + skew * (end - skew / (6 * n))) - 1) for end in (-half, half)]
    return mean - spread * max(ends), mean - spread * min(ends)


Units = NDArray[np.int64] | None  # the unit of each case; None where every case is its own
FEWEST = 6  # clusters: of fewer no test can give p < 0.05
FEW = 15  # clusters: from here on intervals cover as they say


def numbered(clusters: Sequence[str | None]) -> Units:
    """Return the unit of each case: the same number for the cases of a cluster, its own for a case without one.

    None if no case has a cluster, so that each is its own unit.
    """
    if not any(clusters):
        return None
    names = [f"cluster {name}" if name else f"case {number}" for number, name in enumerate(clusters)]
    first = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([first[name] for name in names], dtype=np.int64)


def by_unit(values: Floats, units: Units) -> Floats:
    """Return the contribution of each unit to the mean of each row, so that intervals for independent values apply.

    The mean over cases is unchanged: a unit stands for the sum of its cases, linearised around that mean (the ratio
    estimator of cluster samples; Cochran 1977, section 9.3).

    Args:
        values: Rows x cases, NaN where missing.
        units: The unit of each case; None if every case is its own.

    Returns:
        Rows x units, NaN if a row has no case of a unit.
    """
    if units is None:
        return values
    sums, counts, weight = sums_of_units(values, units)
    means = sums.sum(axis=1, keepdims=True) / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.where(counts > 0, means + (sums - means * counts) * weight, np.nan)


def differences_by_unit(differences: Floats, units: Units) -> Floats:
    """Return the same for tests of differences: sums of cases, whose signs are random if nothing differs.

    Linearised around their mean they would not be, in few clusters of unequal sizes.
    """
    if units is None:
        return differences
    sums, counts, weight = sums_of_units(differences, units)
    return np.where(counts > 0, sums * weight, np.nan)


def sums_of_units(values: Floats, units: NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """Return by row and unit the sum and the number of cases, and units over cases, which turns sums into means."""
    present = np.isfinite(values)
    sums, counts = (np.zeros((int(units.max(initial=-1)) + 1, len(values))) for _ in range(2))
    np.add.at(sums, units, np.where(present, values, 0.0).T)
    np.add.at(counts, units, present.astype(float).T)
    weight = (counts > 0).sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    return sums.T, counts.T, weight[:, None]
