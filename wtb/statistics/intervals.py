"""95% intervals of means, by the method that simulation shows to cover (docs/statistics.md has the figures).

- Pass rates: Wilson (1927); their paired differences: Bonett & Price (2012).
- Student's t below 20 cases, and where fewer than 10 cases differ from the most common score.
- BCa bootstrap (Efron 1987) from there on, its levels widened as those of t are wider than the normal ones (Hesterberg
  2015): of 37 normal scores it then covers 95% and not 93%, and of skewed ones 1 to 3 points more than t.
- Above 500 cases the second-order correction for skewness alone, by Hall's transformation (1992), which needs no
  resampling and covers no less often there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]
RESAMPLES = 9_999  # of cases and of signs: the smallest p of a sampled test is 1 / 10,000
BOOTSTRAP_FROM, BOOTSTRAP_TO = 20, 500
BOOTSTRAP_DIFFERENT = 10  # of 37 cases, one better and one worse, BCa covers 75% and t 99%
SKEWED, SKEWED_FROM = 0.3, 5  # beyond this skewness / sqrt(cases) no method here covers 92% of lognormal means
ROUNDING = 1e-12  # relative; a smaller difference comes from floating point, not from the workflow
NORMAL = NormalDist()
Z = NORMAL.inv_cdf(0.975)
# Student's t at 97.5% for 1 to 18 degrees of freedom; beyond, the series of `t_quantile` is exact to 1e-6.
_T = (
    12.7062047, 4.3026527, 3.1824463, 2.7764451, 2.5705818, 2.4469119, 2.3646243, 2.3060041, 2.2621572,
    2.2281389, 2.2009852, 2.1788128, 2.1603687, 2.1447867, 2.1314495, 2.1199053, 2.1098156, 2.1009220,
)  # fmt: skip
_SYMMETRIC = 1e-6  # less skewness than this leaves t as it is
_CHUNK = 1 << 20  # entries of a resampling matrix held at once (8 MB)
ROWS = 512  # rows resampled at once (40 MB of means)


def intervals(values: Floats, seed: int) -> Floats:
    """An interval (low, high) for the mean of each row of `values` (rows x cases, NaN where missing).

    NaN for fewer than two cases, and without variation: then nothing is known of how far the mean could be off.
    """
    found = np.full((len(values), 2), np.nan)
    many: list[int] = []
    for i, row in enumerate(values):
        row = row[np.isfinite(row)]
        if row.size < 2 or is_constant(row):
            continue
        if row.size < BOOTSTRAP_FROM or _different(row) < BOOTSTRAP_DIFFERENT:
            half = t_quantile(row.size - 1) * row.std(ddof=1) / math.sqrt(row.size)
            found[i] = row.mean() - half, row.mean() + half
        elif row.size <= BOOTSTRAP_TO:
            many.append(i)
        else:
            found[i] = _transformed(row)
    for start in range(0, len(many), ROWS):
        block = many[start : start + ROWS]
        found[block] = _bca(values[block], seed)
    return found


def wilson(successes: float, n: int) -> Interval:
    """Wilson's score interval for a proportion (Wilson 1927); NaN for fewer than two trials."""
    if n < 2:
        return math.nan, math.nan
    rate, spread = successes / n, Z * Z / n
    middle = (rate + spread / 2) / (1 + spread)
    half = Z * math.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    return 0.0 if successes == 0 else middle - half, 1.0 if successes == n else middle + half


def rate_difference(differences: Floats) -> Floats:
    """An interval for the difference of two paired rates (Bonett & Price 2012), for each row of -1, 0 and 1."""
    n = np.isfinite(differences).sum(axis=1)
    better = ((differences > 0).sum(axis=1) + 1) / (n + 2)
    worse = ((differences < 0).sum(axis=1) + 1) / (n + 2)
    middle = better - worse
    half = Z * np.sqrt((better + worse - middle**2) / (n + 2))
    ends: Floats = np.clip(np.stack([middle - half, middle + half], axis=1), -1.0, 1.0)
    ends[n < 2] = np.nan
    return ends


def skewness(values: Floats) -> Floats:
    """How far skewness spoils the interval of each row: its third standardised moment over the root of its cases.

    NaN for fewer than SKEWED_FROM cases, which say too little about it, and without variation.
    """
    found = np.full(len(values), np.nan)
    for i, row in enumerate(values):
        row = row[np.isfinite(row)]
        if row.size >= SKEWED_FROM and not is_constant(row):
            centred = row - row.mean()
            centred /= np.abs(centred).max()
            found[i] = abs((centred**3).mean()) / (centred**2).mean() ** 1.5 / math.sqrt(row.size)
    return found


def is_constant(row: Floats) -> bool:
    """Whether finite values differ by no more than rounding."""
    return bool(np.ptp(row) <= ROUNDING * np.max(np.abs(row)))


def t_quantile(freedom: int, z: float = Z) -> float:
    """Student's t where the normal distribution has z (Cornish-Fisher; Abramowitz & Stegun 1964, 26.7.5)."""
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
    """How many of RESAMPLES draws of so many cases are held at once."""
    step = max(1, _CHUNK // cases)
    return (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))


def _different(row: Floats) -> int:
    """How many values are not the most common one."""
    return int(row.size - np.unique(row, return_counts=True)[1].max())


def _transformed(row: Floats) -> Interval:
    """Hall's interval: a cubic takes the skewness out of the t statistic, and is turned back at its quantiles."""
    n, mean = row.size, float(row.mean())
    centred = row - mean
    scale = float(np.abs(centred).max())
    centred /= scale
    variance = float((centred**2).mean())
    skew = float((centred**3).mean()) / variance**1.5
    spread = scale * math.sqrt(variance * n / (n - 1))
    t = t_quantile(n - 1)
    low, high = t / math.sqrt(n), -t / math.sqrt(n)
    if abs(skew) > _SYMMETRIC:
        low, high = (3 / skew * (math.cbrt(1 + skew * (end - skew / (6 * n))) - 1) for end in (low, high))
    return mean - spread * low, mean - spread * high


def _bca(values: Floats, seed: int) -> Floats:
    """Bias-corrected and accelerated bootstrap intervals of the mean of each row, widened to the levels of t."""
    present = np.isfinite(values)
    n = present.sum(axis=1, keepdims=True)
    means = np.nansum(values, axis=1, keepdims=True) / n
    centred = np.where(present, values - means, 0.0)
    scale = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    centred /= scale
    # The jackknife values of a mean are linear in the scores, which leaves this of Efron's formula.
    acceleration = (centred**3).sum(axis=1, keepdims=True) / 6
    z = np.array([[math.sqrt(k / (k - 1)) * t_quantile(k - 1)] for k in n[:, 0].tolist()])
    resampled = _resampled_means(centred, present, seed)
    rows = zip(resampled, acceleration[:, 0].tolist(), z[:, 0].tolist(), strict=True)
    ends = np.array([_bca_ends(row, accelerated, wide) for row, accelerated, wide in rows])
    return np.asarray(means + scale * ends)


def _bca_ends(resampled: Floats, acceleration: float, z: float) -> Floats:
    """Efron's percentiles of resampled means around 0; one that equals the mean counts half below it."""
    below = float((resampled < 0).mean() + (resampled <= 0).mean()) / 2
    bias = NORMAL.inv_cdf(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    levels = [NORMAL.cdf(bias + (bias + end) / (1 - acceleration * (bias + end))) for end in (-z, z)]
    return np.quantile(resampled, levels)


def _resampled_means(centred: Floats, present: NDArray[np.bool_], seed: int) -> Floats:
    """Means of each row under RESAMPLES draws of the cases.

    A case is drawn together with whether it has a score, so rows that miss other cases share the draws.
    """
    cases, complete, parts = centred.shape[1], bool(present.all()), []
    drawn = _draws(cases, abs(seed))
    step = next(chunks(cases))
    for start in range(0, RESAMPLES, step):
        weights = drawn[start : start + step].astype(np.float64).T
        parts.append(centred @ weights / (cases if complete else np.maximum(present @ weights, 1.0)))
    return np.hstack(parts)


@functools.lru_cache(maxsize=1)  # all metrics of a sweep share them: 5 MB for 500 cases
def _draws(cases: int, seed: int) -> NDArray[np.uint8]:
    """How often each case is drawn, RESAMPLES x cases."""
    rng = np.random.default_rng([seed, 0])
    parts = []
    for draws in chunks(cases):
        drawn = rng.integers(0, cases, size=(draws, cases), dtype=np.int32)
        drawn += np.arange(0, draws * cases, cases, dtype=np.int32)[:, None]
        parts.append(np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).astype(np.uint8))
    return np.vstack(parts)
