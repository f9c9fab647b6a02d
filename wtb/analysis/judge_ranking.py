"""Rankings of rows from pairwise comparisons by people and judges: Bradley-Terry with ties and a first position."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from wtb.analysis.judge_bias import Figure
from wtb.analysis.statistics.anytime import capital
from wtb.analysis.statistics.intervals import Floats, Interval, logistic, t_quantile, tail_quantile
from wtb.core.frozen import frozen

Numbers = NDArray[np.int64]

_PRIOR = 0.25  # precision, as of one comparison: the strength of a row that never lost is finite
_STEPS, _DONE = 100, 1e-9
_FEWEST = 5  # units; with fewer, a figure has no interval
ALPHA = 0.05


@frozen
class Comparisons:
    """Comparisons of two rows each.

    Attributes:
        first: The number of the row that was shown first.
        second: The number of the other row.
        result: 1 if the first is better, -1 if the second is, 0 for a tie.
        unit: The number of the case, or of its cluster.
    """

    first: Numbers
    second: Numbers
    result: Numbers
    unit: Numbers

    def __len__(self) -> int:
        return len(self.first)


def joined(parts: Sequence[Comparisons]) -> Comparisons:
    """Concatenate comparisons in their order."""
    empty = np.zeros(0, dtype=np.int64)
    columns = ("first", "second", "result", "unit")
    return Comparisons(*(np.concatenate([empty, *(getattr(part, name) for part in parts)]) for name in columns))


@frozen
class Strengths:
    """Strengths of rows that comparisons imply.

    Attributes:
        strength: By row, in log odds; their mean is 0.
        interval: Rows x 2, each a 95% interval.
        rank: Rows x 2, the best and the worst rank that each may have, with 95% for each row.
        first: The advantage of the first position in log odds; 0 is no bias.
        first_interval: Its 95% interval.
    """

    strength: Floats
    interval: Floats
    rank: Numbers
    first: float
    first_interval: Interval


def strengths(comparisons: Comparisons, rows: int) -> Strengths:
    """Estimate the strength of each row.

    Args:
        comparisons: The comparisons. Their number must not depend on their results; see `race` if it does.
        rows: How many rows there are.

    Returns:
        Strengths, with NaN for intervals if there are fewer than five units.
    """
    design = _design(comparisons, rows)
    values = _maximum(design, comparisons.result)
    cov, freedom = _covariance(design, comparisons, values)
    # Only differences of strengths are identified, so they are centred; the prior holds the level in place.
    centre = np.eye(rows) - 1 / rows
    strength = centre @ values[:rows]
    spread = np.sqrt(np.diag(centre @ cov[:rows, :rows] @ centre))
    quantile = t_quantile(freedom) if freedom else math.nan
    half = spread * quantile
    interval = np.stack([strength - half, strength + half], axis=1)
    ranks = _ranks(strength, cov[:rows, :rows], freedom)
    first, of_first = float(values[rows]), math.sqrt(cov[rows, rows]) * quantile
    return Strengths(strength, interval, ranks, first, (first - of_first, first + of_first))


def estimates(comparisons: Comparisons, rows: int) -> Floats:
    """Return the strength of each row, without intervals."""
    values = _maximum(_design(comparisons, rows), comparisons.result)[:rows]
    return np.asarray(values - values.mean())


def _design(comparisons: Comparisons, rows: int) -> Floats:
    """Return comparisons x (rows and the advantage of the first): half the difference, from which the odds follow."""
    design = np.zeros((len(comparisons), rows + 1))
    places = np.arange(len(comparisons))
    design[places, comparisons.first] += 0.5
    design[places, comparisons.second] -= 0.5
    design[:, rows] = 0.5
    return design


def _chances(design: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the probabilities that the first wins, that the second wins, and of a tie."""
    half = design @ values[:-1]
    odds = np.stack([half, -half, np.full(len(half), values[-1])])
    # Subtracting the maximum keeps `exp` from overflowing; it cancels in the ratio.
    odds = np.exp(odds - odds.max(axis=0))
    first, second, tie = odds / odds.sum(axis=0)
    return first, second, tie


def _scores(design: Floats, preferences: Numbers, values: Floats) -> tuple[Floats, Floats]:
    """Return the score by comparison and parameter, and the information in each comparison as three columns."""
    first, second, tie = _chances(design, values)
    lead = first - second
    score = np.column_stack([design * (preferences - lead)[:, None], (preferences == 0) - tie])
    return score, np.stack([first + second - lead**2, tie * (1 - tie), -lead * tie], axis=1)


def _information(design: Floats, parts: Floats) -> Floats:
    size = design.shape[1] + 1
    information = np.zeros((size, size))
    information[:-1, :-1] = (design * parts[:, :1]).T @ design
    information[-1, -1] = parts[:, 1].sum()
    information[:-1, -1] = information[-1, :-1] = design.T @ parts[:, 2]
    return information


def _maximum(design: Floats, preferences: Numbers) -> Floats:
    """Maximize the likelihood by Newton's method, halving a step that would not increase it."""
    values = np.zeros(design.shape[1] + 1)
    prior = _PRIOR * np.eye(len(values))
    height = _height(design, preferences, values)
    for _ in range(_STEPS):
        score, parts = _scores(design, preferences, values)
        step = np.linalg.solve(_information(design, parts) + prior, score.sum(axis=0) - _PRIOR * values)
        while (reached := _height(design, preferences, values + step)) < height and np.abs(step).max() > _DONE:
            step /= 2
        values, height = values + step, reached
        if np.abs(step).max() <= _DONE:
            break
    return np.asarray(values)


def _height(design: Floats, preferences: Numbers, values: Floats) -> float:
    first, second, tie = _chances(design, values)
    chance = np.where(preferences > 0, first, np.where(preferences < 0, second, tie))
    return float(np.log(np.maximum(chance, 1e-300)).sum() - _PRIOR / 2 * (values**2).sum())


def _covariance(design: Floats, comparisons: Comparisons, values: Floats) -> tuple[Floats, int]:
    """Return the covariance of the parameters and its degrees of freedom: 0 if there are too few units."""
    score, parts = _scores(design, comparisons.result, values)
    information = _information(design, parts) + _PRIOR * np.eye(len(values))
    plain = np.asarray(np.linalg.inv(information), dtype=np.float64)
    by_unit = np.argsort(comparisons.unit, kind="stable")
    units = np.split(by_unit, np.flatnonzero(np.diff(comparisons.unit[by_unit])) + 1)
    if len(units) < _FEWEST:
        return plain, 0
    moves = np.empty((len(units), len(values)))
    for place, own in enumerate(units):
        # One Newton step from the full estimate instead of a refit for each unit: accurate to second order, and linear
        # in units.
        moves[place] = np.linalg.solve(information - _information(design[own], parts[own]), score[own].sum(axis=0))
    moves -= moves.mean(axis=0)
    left_out = np.asarray((len(units) - 1) / len(units) * (moves.T @ moves), dtype=np.float64)
    return _larger(left_out, plain), len(units) - 1


def _larger(covariance: Floats, other: Floats) -> Floats:
    """Return a covariance in which every combination of parameters varies at least as much as in both given ones."""
    root = np.linalg.cholesky(other)
    turned = np.linalg.solve(root, np.linalg.solve(root, covariance).T)
    size, axes = np.linalg.eigh((turned + turned.T) / 2)
    return np.asarray(root @ (axes * np.maximum(size, 1.0)) @ axes.T @ root.T)


def _ranks(strength: Floats, cov: Floats, freedom: int) -> Numbers:
    rows = len(strength)
    if not freedom or rows < 2:
        return np.tile([1, rows], (rows, 1)).astype(np.int64)
    variance = np.diag(cov)[:, None] + np.diag(cov)[None, :] - 2 * cov
    # One row is compared with all others, so the level is shared by rows - 1 comparisons.
    z = tail_quantile(ALPHA / (2 * (rows - 1)))  # all comparisons of one row hold together
    half = t_quantile(freedom, z) * np.sqrt(np.maximum(variance, 0.0))
    lead = strength[:, None] - strength[None, :]
    np.fill_diagonal(half, math.inf)
    better, worse = (lead < -half).sum(axis=1), (lead > half).sum(axis=1)
    return np.stack([1 + better, rows - worse], axis=1).astype(np.int64)


Pairs = list[tuple[int, int]]


def could_be_best(comparisons: Comparisons, rows: int) -> NDArray[np.bool_]:
    """Return which rows are not ruled out as the best.

    In 95% of sweeps the best row is among them, at whatever time one looks.

    Args:
        comparisons: The comparisons. Units are numbered in the order in which they were drawn.
        rows: How many rows there are.
    """
    return np.asarray(capital(_beaten(comparisons, rows), 1.0, ALPHA) < 1 / ALPHA)


def race(
    rows: int, units: Iterable[int], compare: Callable[[int, Pairs], Comparisons | None], rng: np.random.Generator
) -> tuple[Comparisons, bool]:
    """Compare the most informative pairs, unit by unit, until the best row is known.

    Args:
        rows: How many rows there are.
        units: Their numbers, in random order.
        compare: Compares pairs in a unit; returns None if no more may be compared.
        rng: Draws the pairs of the first unit.

    Returns:
        All comparisons, with units numbered in their order, and whether the best is known.
    """
    comparisons = joined(())
    for place, unit in enumerate(units):
        pairs = next_pairs(comparisons, rows, rng)
        if not pairs:
            return comparisons, True
        new = compare(unit, pairs)
        if new is None:
            return comparisons, False
        comparisons = joined((comparisons, replace(new, unit=np.full(len(new), place))))
    return comparisons, not next_pairs(comparisons, rows, rng)


def next_pairs(comparisons: Comparisons, rows: int, rng: np.random.Generator) -> Pairs:
    """Return the pairs to compare in the next unit; empty if the best row is known.

    Args:
        comparisons: The comparisons of the units before.
        rows: How many rows there are.
        rng: Draws the pairs of the first unit.
    """
    if not len(comparisons):
        drawn = rng.permutation(rows).tolist()
        return list(zip(drawn[::2], drawn[1::2], strict=False))
    standing = np.flatnonzero(could_be_best(comparisons, rows))
    if len(standing) < 2:
        return []
    strongest = int(standing[np.argmax(estimates(comparisons, rows)[standing])])
    return [(strongest, int(row)) for row in standing if row != strongest]


def _beaten(comparisons: Comparisons, rows: int) -> Floats:
    """Return rows x units: by how much the opponents of a row beat it, from -1 to 1; NaN without opponents."""
    units = int(comparisons.unit.max(initial=-1)) + 1
    sums, counts = np.zeros((rows, units)), np.zeros((rows, units))
    for row, sign in ((comparisons.first, -1.0), (comparisons.second, 1.0)):
        np.add.at(sums, (row, comparisons.unit), sign * comparisons.result)
        np.add.at(counts, (row, comparisons.unit), 1.0)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1.0), np.nan))


Ended = Literal["known", "cases", "most"]


@frozen
class RankedRow:
    """A row with its place in a ranking.

    Attributes:
        combination: The variant of each varied node.
        comparisons: How many comparisons include it.
        wins: The share that it won, ties as half.
        strength: In log odds against a row of mean strength.
        rank: The best and the worst rank that it may have, with 95%.
        could_be_best: True if it is not ruled out as the best, however often one has looked.
    """

    combination: dict[str, str]
    comparisons: int
    wins: float | None
    strength: Figure
    rank: tuple[int, int]
    could_be_best: bool


@frozen
class Asked:
    """The questions that a judge was asked for a ranking.

    Attributes:
        calls: How many comparisons.
        failed: How many of them had no usable reply.
        usd: Their cost; None if a price is unknown.
        ended: Why the questions ended: the best is `known`, no `cases` are left, or more than `most` calls would be
            needed.
    """

    calls: int
    failed: int
    usd: float | None
    ended: Ended


@frozen
class RowRanking:
    """Rows ranked by comparisons, strongest first.

    Attributes:
        sweep: The id of the sweep.
        raters: The raters.
        comparisons: How many comparisons count.
        cases: How many cases, or clusters of cases, they cover.
        shown_first: The probability that the first of two equal rows wins if there is no tie: 0.5 is no bias.
        asked: The questions that a judge was asked now; None if none were.
        rows: All rows of the sweep.
    """

    sweep: str
    raters: tuple[str, ...]
    comparisons: int
    cases: int
    shown_first: Figure
    asked: Asked | None
    rows: tuple[RankedRow, ...]


def ranking(
    sweep: str,
    choices: Sequence[dict[str, str]],
    comparisons: Comparisons,
    raters: tuple[str, ...],
    questioned: Asked | None = None,
) -> RowRanking:
    """Rank rows.

    Args:
        sweep: The id of the sweep.
        choices: Its combinations, by number.
        comparisons: The comparisons, with units numbered in the order in which they were drawn.
        raters: The raters.
        questioned: The questions that a judge was asked now.
    """
    fitted, standing = strengths(comparisons, len(choices)), could_be_best(comparisons, len(choices))
    ranked = [
        RankedRow(
            choices[row],
            int(((comparisons.first == row) | (comparisons.second == row)).sum()),
            _share_won(comparisons, row),
            _figure(float(fitted.strength[row]), fitted.interval[row].tolist()),
            (int(fitted.rank[row, 0]), int(fitted.rank[row, 1])),
            bool(standing[row]),
        )
        # Stable, so that rows of equal strength keep the order of the sweep.
        for row in np.argsort(-fitted.strength, kind="stable").tolist()
    ]
    first = _figure(logistic(fitted.first), [logistic(end) for end in fitted.first_interval])
    cases = len(np.unique(comparisons.unit))
    return RowRanking(sweep, raters, len(comparisons), cases, first, questioned, tuple(ranked))


def _share_won(comparisons: Comparisons, row: int) -> float | None:
    won = np.concatenate([comparisons.result[comparisons.first == row], -comparisons.result[comparisons.second == row]])
    return float((won.mean() + 1) / 2) if len(won) else None


def _figure(strength: float, interval: Sequence[float]) -> Figure:
    return Figure(strength, (interval[0], interval[1]) if math.isfinite(interval[0]) else None)
