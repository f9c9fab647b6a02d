"""What the scores of one metric say: means, intervals, differences from the baseline, and the best.

The case is the unit: a row of `scores` is a combination, a column a case, repeats already averaged,
NaN where a combination has no score. Import it only where a matrix is made: it needs numpy.

Intervals cover the mean over cases at a nominal 95%:
- Wilson (1927) where the scores are 0 or 1;
- Student's t below 30 cases, where BCa covers too seldom (82% for 10 lognormal scores);
- BCa bootstrap (Efron 1987) up to 2,000 cases, and above that its second-order expansion (DiCiccio &
  Efron 1996), which by then agrees with it to a few hundredths of its width, mostly to under one.

What the data do not define is NaN inside this module and None outside: never NaN, never a guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Better = Literal["higher", "lower"]
RESAMPLES = 9_999  # of cases and of signs: the smallest p of a sampled test is 1 / 10,000
EXACT_PAIRS = 13  # 2**13 <= RESAMPLES: every flip of so few pairs can be enumerated
BOOTSTRAP_FROM, BOOTSTRAP_TO = 30, 2_000
SIGNIFICANT = 0.05
_NORMAL = NormalDist()
_Z = _NORMAL.inv_cdf(0.975)
# Student's t at 97.5% for 1 to 28 degrees of freedom, which is all that fewer than 30 cases need.
_T = (
    12.7062047, 4.3026527, 3.1824463, 2.7764451, 2.5705818, 2.4469119, 2.3646243, 2.3060041, 2.2621572,
    2.2281389, 2.2009852, 2.1788128, 2.1603687, 2.1447867, 2.1314495, 2.1199053, 2.1098156, 2.1009220,
    2.0930241, 2.0859634, 2.0796138, 2.0738731, 2.0686576, 2.0638986, 2.0595386, 2.0555294, 2.0518305,
    2.0484071,
)  # fmt: skip
_ROUNDING = 1e-12  # relative; a smaller difference comes from floating point, not from the workflow
_CHUNK = 1 << 20  # entries of a resampling matrix held at once (8 MB)
_ROWS = 512  # rows bootstrapped at once (40 MB of resampled means)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One combination under one metric; field for field an entry of `metrics` in the JSON contract.

    `p` is from the two-sided paired test against the baseline, `p_adjusted` the same after Holm's
    correction over all combinations. The baseline itself has no pairs and no difference.
    """

    n: int
    n_pairs: int
    mean: float | None
    ci: Interval | None
    delta: float | None
    delta_ci: Interval | None
    p: float | None
    p_adjusted: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All combinations under one metric, and the row with the best mean; `clear` if it beats the runner-up."""

    rows: tuple[Estimate, ...]
    best: int | None
    clear: bool


def compare(scores: Floats, *, baseline: int | None = None, better: Better = "higher", seed: int = 0) -> Comparison:
    """Estimates for every row of `scores` (combinations x cases), and the best of them.

    `baseline` is the index of a row. A score that is not finite, or beyond 1e100, counts as missing.
    """
    scores = np.where(np.abs(scores) < 1e100, scores, np.nan)
    scores[np.abs(scores) < 1e-100] = 0.0  # so that no square underflows
    means = _means(scores)
    ranked = np.where(np.isnan(means), -np.inf, means if better == "higher" else -means)
    best = int(np.argmax(ranked)) if np.isfinite(ranked).any() else None
    deltas, leads = _differences(scores, baseline), _differences(scores, best)
    p, p_best = np.split(_sign_flip(np.vstack([deltas, leads]), seed), 2)
    ci, delta_ci = np.split(_intervals(np.vstack([scores, deltas]), seed), 2)
    if _is_rate(scores, better):
        delta_ci = np.clip(delta_ci, -1.0, 1.0)
        ci = np.array([wilson(float(np.nansum(row)), int(np.isfinite(row).sum())) for row in scores])
    counts = (np.isfinite(values).sum(axis=1).tolist() for values in (scores, deltas))
    columns = (_defined(column) for column in (means, ci, _means(deltas), delta_ci, p, holm(p)))
    lead = _means(leads) if better == "lower" else -_means(leads)
    return Comparison(tuple(map(Estimate, *counts, *columns)), best, _is_clear(ranked, best, lead, p_best))


def holm(p: Floats) -> Floats:
    """p-values after Holm's step-down correction (Holm 1979); NaN stays NaN and does not count."""
    order = np.argsort(p)[: np.isfinite(p).sum()]
    adjusted = np.full_like(p, np.nan)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(order.size, 0, -1)))
    return adjusted


def wilson(successes: float, n: int) -> Interval:
    """Wilson's score interval for a proportion (Wilson 1927); NaN for fewer than two trials."""
    if n < 2:
        return math.nan, math.nan
    rate, spread = successes / n, _Z * _Z / n
    middle = (rate + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(rate * (1 - rate) / n + spread / (4 * n)) / (1 + spread)
    return 0.0 if successes == 0 else middle - half, 1.0 if successes == n else middle + half


def _defined(values: Floats) -> list[float | None] | list[Interval | None]:
    if values.ndim == 2:
        return [None if math.isnan(low) else (low, high) for low, high in values.tolist()]
    return [None if math.isnan(value) else value for value in values.tolist()]


def _means(values: Floats) -> Floats:
    """The mean of each row; summed exactly, so that equal scores in another order tie."""
    rows = (row[np.isfinite(row)].tolist() for row in values)
    return np.array([math.fsum(row) / len(row) if row else math.nan for row in rows])


def _is_rate(scores: Floats, better: str) -> bool:
    """Whether all scores are 0 or 1. A cost of 0, or 1 node run, in every case is a constant, not a rate."""
    found = np.unique(scores[np.isfinite(scores)])
    return bool(np.isin(found, (0, 1)).all()) and (better == "higher" or found.size == 2)


def _differences(scores: Floats, reference: int | None) -> Floats:
    """Each row less the reference row, case by case; NaN where one is missing and in the reference row."""
    differences = np.full_like(scores, np.nan)
    if reference is not None:
        other = scores[reference]
        np.subtract(scores, other, out=differences)
        differences[np.abs(differences) <= _ROUNDING * np.maximum(np.abs(scores), np.abs(other))] = 0.0
        differences[reference] = np.nan
    return differences


def _is_clear(ranked: Floats, best: int | None, lead: Floats, p: Floats) -> bool:
    """Whether the best beats the runner-up, or each of several that share its place.

    Comparing only with the runner-up needs no correction for having picked the best (Hung & Fithian 2019, rank
    verification).
    """
    rivals = np.isfinite(ranked) & (np.arange(ranked.size) != best)
    if not rivals.any():
        return False
    runners_up = rivals & (ranked == ranked[rivals].max())
    return bool((lead[runners_up] > 0).all() and (p[runners_up] < SIGNIFICANT).all())


def _intervals(values: Floats, seed: int) -> Floats:
    """An interval (low, high) for the mean of each row: t for a few cases, BCa for many."""
    intervals = np.full((len(values), 2), np.nan)
    many: list[int] = []
    for i, row in enumerate(values):
        row = row[np.isfinite(row)]
        if row.size < 2 or np.ptp(row) <= _ROUNDING * np.max(np.abs(row)):
            continue  # without variation nothing is known of how far the mean could be off
        if row.size >= BOOTSTRAP_FROM:
            many.append(i)
        else:
            half = _T[row.size - 2] * row.std(ddof=1) / math.sqrt(row.size)
            intervals[i] = row.mean() - half, row.mean() + half
    for start in range(0, len(many), _ROWS):
        block = many[start : start + _ROWS]
        intervals[block] = _bca(values[block], seed)
    return intervals


def _bca(values: Floats, seed: int) -> Floats:
    """Bias-corrected and accelerated bootstrap intervals of the mean of each row (Efron 1987)."""
    present = np.isfinite(values)
    n = present.sum(axis=1, keepdims=True)
    means = np.nansum(values, axis=1, keepdims=True) / n
    centred = np.where(present, values - means, 0.0)
    scale = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    centred /= scale
    # The jackknife values of a mean are linear in the scores, which leaves this of Efron's formula.
    acceleration = (centred**3).sum(axis=1, keepdims=True) / 6
    if values.shape[1] > BOOTSTRAP_TO:
        ends = (acceleration * (2 * _Z * _Z + 1) + np.array([-_Z, _Z])) / n
    else:
        resampled = _resampled_means(centred, present, seed)
        pairs = zip(resampled, acceleration[:, 0].tolist(), strict=True)
        ends = np.array([_bca_ends(row, accelerated) for row, accelerated in pairs])
    return np.asarray(means + scale * ends)


def _bca_ends(resampled: Floats, acceleration: float) -> Floats:
    """Efron's percentiles of resampled means around 0; one that equals the mean counts half below it."""
    below = float((resampled < 0).mean() + (resampled <= 0).mean()) / 2
    bias = _NORMAL.inv_cdf(min(max(below, 1 / RESAMPLES), 1 - 1 / RESAMPLES))
    levels = [_NORMAL.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (-_Z, _Z)]
    return np.quantile(resampled, levels)


def _resampled_means(centred: Floats, present: NDArray[np.bool_], seed: int) -> Floats:
    """Means of each row under RESAMPLES draws of the cases.

    A case is drawn together with whether it has a score, so rows that miss other cases share the draws.
    """
    rng = np.random.default_rng([abs(seed), 0])
    cases, chunks = centred.shape[1], []
    for draws in _chunks(cases):
        drawn = rng.integers(0, cases, size=(draws, cases), dtype=np.int32)
        drawn += np.arange(0, draws * cases, cases, dtype=np.int32)[:, None]
        weights = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape).T.astype(np.float64)
        chunks.append(centred @ weights / np.maximum(present @ weights, 1.0))
    return np.hstack(chunks)


def _chunks(cases: int) -> Iterator[int]:
    step = max(1, _CHUNK // cases)
    return (min(step, RESAMPLES - start) for start in range(0, RESAMPLES, step))


def _sign_flip(differences: Floats, seed: int) -> Floats:
    """Two-sided p of the paired sign-flip permutation test (Fisher 1935) for each row."""
    testable = np.isfinite(differences).sum(axis=1) >= 2
    filled = np.nan_to_num(differences)  # a pair that agrees, like one that is missing, changes no flip
    exact = (filled != 0).sum(axis=1) <= EXACT_PAIRS
    p = np.full(len(filled), np.nan)
    for i in np.flatnonzero(testable & exact):
        row = filled[i][filled[i] != 0]
        signs = 1.0 - 2.0 * (np.arange(2**row.size)[:, None] >> np.arange(row.size) & 1)
        p[i] = (np.abs(signs @ row) >= _extreme(row)).mean()
    if (testable & ~exact).any():
        p[testable & ~exact] = _sampled_p(filled[testable & ~exact], seed)
    return p


def _extreme(differences: Floats) -> Floats:
    """From where the sum of flipped differences is as extreme as the observed one, rounding allowed for."""
    return np.asarray(np.abs(differences.sum(axis=-1)) - _ROUNDING * np.abs(differences).sum(axis=-1))


def _sampled_p(differences: Floats, seed: int) -> Floats:
    """p by random flips; the observed signs count as one of them, so p > 0 (Phipson & Smyth 2010)."""
    cases = differences.shape[1]
    if cases > BOOTSTRAP_TO:  # the normal limit of the flips, with the same smallest p
        z = np.abs(differences.sum(axis=1)) / np.sqrt((differences**2).sum(axis=1))
        return np.array([max(math.erfc(value / math.sqrt(2)), 1 / (RESAMPLES + 1)) for value in z])
    rng = np.random.default_rng([abs(seed), 1])
    hits = np.ones(len(differences))
    for flips in _chunks(cases):
        noise = np.frombuffer(rng.bytes(flips * cases // 8 + 1), np.uint8)
        signs = np.unpackbits(noise, count=flips * cases).reshape(flips, cases) * 2.0 - 1.0
        hits += (np.abs(differences @ signs.T) >= _extreme(differences)[:, None]).sum(axis=1)
    return hits / (RESAMPLES + 1)
