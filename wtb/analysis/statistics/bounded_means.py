"""Upper bounds of means of bounded values, which hold for few cases, rare losses and skew alike.

The bound is the quantile of a mean under random weights (uniform on the simplex), with one more value at the worst end
of the scale (Gaffke 2005; Learned-Miller & Thomas 2020). For values of 0 and 1 it is exactly that of Clopper & Pearson
(1934), for many cases that of the normal distribution. The quantile is Lugannani & Rice's (1980) saddlepoint, which
needs no resampling: weights are exponential variables, whose cumulants are known.
"""

from __future__ import annotations

import numpy as np

from wtb.analysis.statistics.intervals import Floats

_STEPS, _LAST = 14, 2  # of a bisection over 18 decades, and of interpolation between its ends: to 1e-8 of the scale
_SAME = 1e-9  # of the span: values that differ by less are the same
_FEW_VALUES = 64  # distinct ones, which are counted instead of listed
_BLOCK = 1 << 20  # entries that are bounded together


def upper_bounds(values: Floats, worst: Floats, z: Floats) -> Floats:
    """Return what the mean of each row is below.

    Args:
        values: Rows x units, NaN where one is missing.
        worst: The largest value that each row could have.
        z: The normal quantile of the level of each row; 1.64 gives 95%.

    Returns:
        One bound a row; NaN without values.
    """
    bounds = np.full(len(values), np.nan)
    step = max(1, _BLOCK // max(1, values.shape[1]))
    for start in range(0, len(values), step):
        rows = slice(start, start + step)
        bounds[rows] = _bounded(values[rows], np.asarray(worst)[rows], np.asarray(z)[rows])
    return bounds


def _bounded(values: Floats, worst: Floats, z: Floats) -> Floats:
    present = np.isfinite(values)
    top = np.maximum(worst, np.where(present, values, -np.inf).max(axis=1, initial=-np.inf))
    distances, counts = _counted(np.where(present, top[:, None] - np.where(present, values, 0.0), np.nan))
    counts[:, 0] += 1  # the one more value, at the worst end
    span, size = distances.max(axis=1, initial=0.0), counts.sum(axis=1)
    varies = (size > 1) & (span > 0)
    safe = np.where(varies, span, 1.0)
    scaled = distances / safe[:, None]
    low, high = np.full(len(values), -12 * np.log(10)), np.full(len(values), 6 * np.log(10))
    above, under = np.full(len(values), np.inf), np.full(len(values), -np.inf)  # quantiles at both ends, less z
    mean = np.zeros(len(values))
    for step in range(_STEPS + _LAST):
        share = 0.5 if step < _STEPS else _where_zero(above, under)
        middle = low + (high - low) * share
        mean, quantile = _tilted(scaled, counts, size, np.exp(middle))
        is_beyond = quantile > z
        low, high = np.where(is_beyond, middle, low), np.where(is_beyond, high, middle)
        above, under = np.where(is_beyond, quantile - z, above), np.where(is_beyond, under, quantile - z)
    return np.where(varies, top - mean * safe, np.where(size > 1, top, np.nan))


def _where_zero(above: Floats, under: Floats) -> Floats:
    """Return where between two ends a line from `above` to `under` is 0; the middle if an end is not finite."""
    is_known = np.isfinite(above) & np.isfinite(under)
    rise = np.where(is_known, above, 0.5)
    return np.asarray(rise / (rise - np.where(is_known, under, -0.5)))


def _counted(distances: Floats) -> tuple[Floats, Floats]:
    """Return values as columns with how often each occurs in each row; the first column is 0."""
    distinct = np.unique(distances[np.isfinite(distances)])
    if distinct.size <= _FEW_VALUES:
        columns = np.concatenate([[0.0], distinct])
        counts = np.stack([np.zeros(len(distances)), *((distances == value).sum(axis=1) for value in distinct)], axis=1)
        return np.broadcast_to(columns, counts.shape), counts
    counts = np.concatenate([np.zeros((len(distances), 1)), np.isfinite(distances)], axis=1)
    return np.concatenate([np.zeros((len(distances), 1)), np.nan_to_num(distances)], axis=1), counts.astype(np.float64)


def _tilted(distances: Floats, counts: Floats, size: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Return the mean, below the top, whose saddlepoint is at `shift`, and the normal quantile of its probability."""
    weight = 1 / (shift[:, None] + distances)
    total = (counts * weight).sum(axis=1)
    mean = (counts * weight * distances).sum(axis=1) / total
    root = 2 * (size * np.log(total / size) - (counts * np.log(weight)).sum(axis=1))
    w = np.sqrt(np.maximum(root, 1e-300))
    moved = (mean[:, None] - distances) * weight * (size / total)[:, None]
    u = total / size * np.sqrt((counts * moved**2).sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        quantile = w + np.log(u / w) / w
    return mean, np.where(w > _SAME, quantile, -np.inf)
