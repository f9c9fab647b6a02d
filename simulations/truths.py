"""Sweeps as people run them, whose truth is known: shared prefixes, unequal spreads, skew, ties, failures, clusters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from wtb.analysis.statistics import Floats

Rng = np.random.Generator
Draw = Callable[[Rng, int, int], tuple[Floats, Floats]]  # rows, cases -> scores (rows x cases), true means of the rows


@dataclass(frozen=True)
class Values:
    """Independent scores of one row: `draw` gives any shape of them, `mean` is their truth."""

    draw: Callable[[Rng, tuple[int, ...]], Floats]
    mean: float


def _often(share: float, rest: Callable[[Rng, tuple[int, ...]], Floats]) -> Callable[[Rng, tuple[int, ...]], Floats]:
    return lambda rng, shape: np.where(rng.random(shape) < share, 0.0, rest(rng, shape))


def _judge(rng: Rng, shape: tuple[int, ...]) -> Floats:
    return rng.choice(np.array([0, 0.25, 0.5, 0.75, 1.0]), p=[0.02, 0.03, 0.1, 0.25, 0.6], size=shape)


def _pass(rate: float) -> Values:
    return Values(lambda rng, shape: (rng.random(shape) < rate).astype(np.float64), rate)


SCORES: Mapping[str, Values] = {
    "normal": Values(lambda rng, shape: rng.normal(size=shape), 0.0),
    "heavy tails (t with 3 degrees of freedom)": Values(lambda rng, shape: rng.standard_t(3, size=shape), 0.0),
    "90% ties, else normal": Values(_often(0.9, lambda rng, shape: rng.normal(size=shape)), 0.0),
    "0 in 70%, else uniform": Values(_often(0.7, lambda rng, shape: rng.random(shape)), 0.15),
    "a judge of five levels": Values(_judge, 0.845),
    "mean of 3 repeats, each right in 90%": Values(lambda rng, shape: rng.binomial(3, 0.9, shape) / 3, 0.9),
    "skewed (exponential)": Values(lambda rng, shape: rng.exponential(size=shape), 1.0),
    "skewed (lognormal, sigma 0.5)": Values(lambda rng, shape: np.exp(rng.normal(0, 0.5, shape)), math.exp(0.125)),
    "very skewed (lognormal, sigma 1)": Values(lambda rng, shape: np.exp(rng.normal(size=shape)), math.exp(0.5)),
    "pass rate 50%": _pass(0.5),
    "pass rate 90%": _pass(0.9),
    "pass rate 98%": _pass(0.98),
}


@functools.cache
def shape(values: Values) -> tuple[float, float]:
    """The skewness of scores, and the share of them that is not the most common one; from 100,000 of them."""
    drawn = values.draw(np.random.default_rng(0), (100_000,))
    centred = drawn - drawn.mean()
    skew = abs(float((centred**3).mean())) / float((centred**2).mean()) ** 1.5
    return skew, 1 - float(np.unique(drawn, return_counts=True)[1].max()) / drawn.size


def equal(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows of equal truth that share how hard a case is."""
    return rng.normal(size=(rows, cases)) + rng.normal(size=cases), np.zeros(rows)


def prefixes(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Two random prefixes (four of 16 rows and more) of equal truth, each with leaves 0.1 apart."""
    count = 2 if rows <= 8 else 4
    leaves = rows // count
    truth = np.tile(-0.1 * np.arange(leaves), count)
    shared = np.repeat(rng.normal(size=(count, cases)), leaves, axis=0)
    return truth[:, None] + shared + 0.1 * rng.normal(size=(rows, cases)), truth


def deep_prefixes(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows of equal truth that share random prefixes at three depths."""
    scores = rng.normal(size=(1, cases)) + 0.5 * rng.normal(size=(rows, cases))
    for size in (max(rows // 2, 1), max(rows // 4, 1)):
        scores = scores + np.repeat(rng.normal(size=(-(-rows // size), cases)), size, axis=0)[:rows]
    return scores, np.zeros(rows)


def unequal_spreads(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows of equal truth, one with 30 times the spread of the others."""
    scores = rng.normal(size=(rows, cases))
    scores[0] *= 30
    return scores, np.zeros(rows)


def skewed(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows of equal truth: half of them skewed one way (exponential), half the other way."""
    scores = rng.exponential(size=(rows, cases))
    scores[::2] = 2 - scores[::2]
    return scores, np.ones(rows)


def judged(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows of equal truth, scored by a judge of five levels who mostly gives the same to all."""
    common, own = _judge(rng, (cases,)), _judge(rng, (rows, cases))
    return np.where(rng.random((rows, cases)) < 0.7, common, own), np.full(rows, 0.845)


def passes(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Pass rates of 90%, independent."""
    return (rng.random((rows, cases)) < 0.9).astype(np.float64), np.full(rows, 0.9)


def one_better(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """One row better than the others by 0.3 of a standard deviation."""
    truth = np.zeros(rows)
    truth[rows // 2] = 0.3
    return truth[:, None] + rng.normal(size=(rows, cases)), truth


def spread_out(rng: Rng, rows: int, cases: int) -> tuple[Floats, Floats]:
    """Rows from 0 to 0.5 standard deviations, evenly."""
    truth = np.linspace(0.0, 0.5, rows)
    return truth[:, None] + rng.normal(size=(rows, cases)), truth


def at_random(rng: Rng, scores: Floats, share: float) -> Floats:
    """The scores with a share of the cells missing, whatever they would have been."""
    return np.where(rng.random(scores.shape) < share, np.nan, scores)


def by_difficulty(rng: Rng, scores: Floats, share: float) -> Floats:
    """The scores with a share of the cells missing, all of them among the harder half of the cases."""
    hard = scores.mean(axis=0) < np.median(scores.mean(axis=0))
    return np.where((rng.random(scores.shape) < 2 * share) & hard, np.nan, scores)
