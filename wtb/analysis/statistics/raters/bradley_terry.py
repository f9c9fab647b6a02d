"""How strong rows are, of comparisons of two at a time: Bradley-Terry with ties and the advantage of being shown first.

A comparison has three outcomes, with odds of exp(d/2) : exp(t) : exp(-d/2) for first : tie : second, where d is the
strength of the first less that of the second, and what being shown first is worth (Davidson 1970; Davidson & Beaver
1977). Comparisons of one case resemble each other, so intervals leave out a case at a time (the jackknife by one step
of Newton's, which is CR3 of Bell & McCaffrey 2002), and are never shorter than those of independent comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.statistics.intervals import Floats, Interval, t_quantile, tail_quantile
from wtb.core.classes.frozen import frozen

Numbers = NDArray[np.int64]

_PRIOR = 0.25  # precision, as of one comparison: the strength of a row that never lost is finite
_STEPS, _DONE = 100, 1e-9
_FEWEST = 5  # units, with fewer of which nothing is said of how far a figure may be off
_ALPHA = 0.05


@frozen
class Comparisons:
    """Comparisons of two rows each.

    Attributes:
        first: The number of the row that was shown first.
        second: Of the other.
        result: 1 where the first is better, -1 where the second is, 0 for a tie.
        unit: The case, or the cluster of cases, by number.
    """

    first: Numbers
    second: Numbers
    result: Numbers
    unit: Numbers

    def __len__(self) -> int:
        return len(self.first)


def joined(parts: Sequence[Comparisons]) -> Comparisons:
    """Several comparisons as one, in their order."""
    empty = np.zeros(0, dtype=np.int64)
    columns = ("first", "second", "result", "unit")
    return Comparisons(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in columns))


@frozen
class Strengths:
    """What comparisons say of rows.

    Attributes:
        strength: By row, in log odds; their mean is 0.
        interval: rows x 2, each of 95%.
        rank: rows x 2, the best and the worst place that each may have, with 95% for each row.
        first: The log odds that being shown first is worth; 0 is no bias.
        first_interval: Of 95%.
    """

    strength: Floats
    interval: Floats
    rank: Numbers
    first: float
    first_interval: Interval


def strengths(comparisons: Comparisons, rows: int) -> Strengths:
    """Estimate the strength of each row.

    Args:
        comparisons: The comparisons. How many there are may not depend on what they said; see `racing` where it does.
        rows: How many rows there are.

    Returns:
        Strengths, with NaN for the intervals of fewer than five units.
    """
    design = _design(comparisons, rows)
    values = _maximum(design, comparisons.result)
    cov, freedom = _covariance(design, comparisons, values)
    centre = np.eye(rows) - 1 / rows
    strength = centre @ values[:rows]
    spread = np.sqrt(np.diag(centre @ cov[:rows, :rows] @ centre))
    half = spread * (t_quantile(freedom) if freedom else math.nan)
    first, of_first = float(values[rows]), math.sqrt(cov[rows, rows]) * (t_quantile(freedom) if freedom else math.nan)
    return Strengths(
        strength,
        np.stack([strength - half, strength + half], axis=1),
        _ranks(strength, cov[:rows, :rows], freedom),
        first,
        (first - of_first, first + of_first),
    )


def estimates(comparisons: Comparisons, rows: int) -> Floats:
    """The strength of each row, without intervals."""
    values = _maximum(_design(comparisons, rows), comparisons.result)[:rows]
    return np.asarray(values - values.mean())


def _design(comparisons: Comparisons, rows: int) -> Floats:
    """comparisons x (rows and the advantage of the first): half the difference, of which the odds are made."""
    design = np.zeros((len(comparisons), rows + 1))
    places = np.arange(len(comparisons))
    design[places, comparisons.first] += 0.5
    design[places, comparisons.second] -= 0.5
    design[:, rows] = 0.5
    return design


def _chances(design: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """The chances that the first wins, that the second does, and of a tie."""
    half = design @ values[:-1]
    odds = np.stack([half, -half, np.full(len(half), values[-1])])
    odds = np.exp(odds - odds.max(axis=0))
    first, second, tie = odds / odds.sum(axis=0)
    return first, second, tie


def _scores(design: Floats, result: Numbers, values: Floats) -> tuple[Floats, Floats]:
    """The derivatives of the likelihood: comparisons x parameters, and the information in each as three columns."""
    first, second, tie = _chances(design, values)
    lead = first - second
    score = np.concatenate(
        [design * (result - lead)[:, None], ((result == 0) - tie)[:, None]],
        axis=1,
    )
    return score, np.stack([first + second - lead**2, tie * (1 - tie), -lead * tie], axis=1)


def _information(design: Floats, parts: Floats) -> Floats:
    size = design.shape[1] + 1
    information = np.zeros((size, size))
    information[:-1, :-1] = (design * parts[:, :1]).T @ design
    information[-1, -1] = parts[:, 1].sum()
    information[:-1, -1] = information[-1, :-1] = design.T @ parts[:, 2]
    return information


def _maximum(design: Floats, result: Numbers) -> Floats:
    """Newton's method, with half the step wherever a whole one would not lead up."""
    values = np.zeros(design.shape[1] + 1)
    prior = _PRIOR * np.eye(len(values))
    height = _height(design, result, values)
    for _ in range(_STEPS):
        score, parts = _scores(design, result, values)
        step = np.linalg.solve(_information(design, parts) + prior, score.sum(axis=0) - _PRIOR * values)
        while (reached := _height(design, result, values + step)) < height and np.abs(step).max() > _DONE:
            step /= 2
        values, height = values + step, reached
        if np.abs(step).max() <= _DONE:
            break
    return np.asarray(values)


def _height(design: Floats, result: Numbers, values: Floats) -> float:
    first, second, tie = _chances(design, values)
    chance = np.where(result > 0, first, np.where(result < 0, second, tie))
    return float(np.log(np.maximum(chance, 1e-300)).sum() - _PRIOR / 2 * (values**2).sum())


def _covariance(design: Floats, comparisons: Comparisons, values: Floats) -> tuple[Floats, int]:
    """The covariance of the parameters, and its degrees of freedom: 0 where there are too few units."""
    score, parts = _scores(design, comparisons.result, values)
    information = _information(design, parts) + _PRIOR * np.eye(len(values))
    plain = np.asarray(np.linalg.inv(information), dtype=np.float64)
    by_unit = np.argsort(comparisons.unit, kind="stable")
    units = np.split(by_unit, np.flatnonzero(np.diff(comparisons.unit[by_unit])) + 1)
    if len(units) < _FEWEST:
        return plain, 0
    moves = np.empty((len(units), len(values)))
    for place, own in enumerate(units):
        moves[place] = np.linalg.solve(information - _information(design[own], parts[own]), score[own].sum(axis=0))
    moves -= moves.mean(axis=0)
    left_out = np.asarray((len(units) - 1) / len(units) * (moves.T @ moves), dtype=np.float64)
    return _larger(left_out, plain), len(units) - 1


def _larger(covariance: Floats, other: Floats) -> Floats:
    """A covariance by which no combination of parameters varies less than by either."""
    root = np.linalg.cholesky(other)
    turned = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    size, axes = np.linalg.eigh((turned + turned.T) / 2)
    return np.asarray(root @ (axes * np.maximum(size, 1.0)) @ axes.T @ root.T)


def _ranks(strength: Floats, cov: Floats, freedom: int) -> Numbers:
    rows = len(strength)
    if not freedom or rows < 2:
        return np.tile([1, rows], (rows, 1)).astype(np.int64)
    variance = np.diag(cov)[:, None] + np.diag(cov)[None, :] - 2 * cov
    z = tail_quantile(_ALPHA / (2 * (rows - 1)))  # all comparisons of one row hold together
    half = t_quantile(freedom, z) * np.sqrt(np.maximum(variance, 0.0))
    lead = strength[:, None] - strength[None, :]
    np.fill_diagonal(half, math.inf)
    better, worse = (lead < -half).sum(axis=1), (lead > half).sum(axis=1)
    return np.stack([1 + better, rows - worse], axis=1).astype(np.int64)
