"""Kinds of scores whose true mean is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wtb.statistics import Floats

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


@dataclass(frozen=True)
class Truth:
    """draw: scores of a shape. rate: they are 0 or 1."""

    draw: Draw
    mean: float
    rate: bool = False


def _passes(rate: float) -> Truth:
    return Truth(lambda rng, shape: (rng.random(shape) < rate).astype(np.float64), rate, rate=True)


def _often_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.where(rng.random(shape) < 0.7, 0.0, rng.random(shape))


SCORES = {
    "normal": Truth(lambda rng, shape: rng.normal(size=shape), 0.0),
    "skewed (lognormal, sigma 0.5)": Truth(lambda rng, shape: np.exp(rng.normal(0, 0.5, shape)), math.exp(0.125)),
    "very skewed (lognormal, sigma 1)": Truth(lambda rng, shape: np.exp(rng.normal(size=shape)), math.exp(0.5)),
    "0 in 70%, else uniform": Truth(_often_zero, 0.15),
    "mean of 3 repeats, each right in 90%": Truth(lambda rng, shape: rng.binomial(3, 0.9, shape) / 3, 0.9),
    "pass rate 50%": _passes(0.5),
    "pass rate 90%": _passes(0.9),
    "pass rate 98%": _passes(0.98),
}


def _correlated(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Differences of two rows that share how hard a case is, which the pairing removes."""
    hard = rng.normal(size=shape)
    return np.asarray((hard + 0.5 * rng.normal(size=shape) + 0.2) - (hard + 0.5 * rng.normal(size=shape)))


def _lognormals(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return np.asarray(np.exp(rng.normal(size=shape)) - np.exp(rng.normal(0, 0.5, shape)))


def flips(up: float, down: float) -> Truth:
    """Differences of paired rates: which shares of the cases rise and fall."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        drawn = rng.random(shape)
        return np.where(drawn < up, 1.0, np.where(drawn < up + down, -1.0, 0.0))

    return Truth(draw, up - down, rate=True)


DIFFERENCES = {
    "normal, cases of unequal difficulty": Truth(_correlated, 0.2),
    "very skewed less skewed": Truth(_lognormals, math.exp(0.5) - math.exp(0.125)),
    "0 in 70%, both rows": Truth(lambda rng, shape: _often_zero(rng, shape) - _often_zero(rng, shape), 0.0),
    "pass rates, 25% up and 25% down": flips(0.25, 0.25),
    "pass rates, 10% up and 2% down": flips(0.1, 0.02),
    "pass rates, 5% up and none down": flips(0.05, 0.0),
    "pass rates, 2% up and 2% down": flips(0.02, 0.02),
}
