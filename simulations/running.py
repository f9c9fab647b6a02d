"""Sequences for a running sweep whose scores have no declared bounds: a user looks after every ten cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from simulations.promises import Promise
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.anytime import asymptotic

Rng = np.random.Generator
Draw = Callable[[Rng, tuple[int, int]], Floats]
WRONG = 0.05
_RARE = 0.97 * 0.02 - 0.03 * 0.65  # the mean of gains of 0.02 with losses of 0.65 in 3%
_CASES = 200


def _costs(rng: Rng, shape: tuple[int, int]) -> Floats:
    return np.exp(rng.normal(0, 1.5, shape))


def _seldom(rng: Rng, shape: tuple[int, int]) -> Floats:
    return np.where(rng.random(shape) < 0.03, -0.65, 0.02) - _RARE


_DIFFERENCES: Mapping[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "cost, alike in both": lambda rng, shape: _costs(rng, shape) - _costs(rng, shape),
    "cost against a steady baseline": lambda rng, shape: _costs(rng, shape) - np.exp(1.125),
    "+0.02 mostly, -0.65 in 3%": _seldom,
    "+0.02 mostly with noise, -0.65 in 3%": lambda rng, shape: _seldom(rng, shape) + rng.normal(0, 0.01, shape),
    "heavy tails (t with 3 degrees of freedom)": lambda rng, shape: rng.standard_t(3, size=shape),
}


def promises() -> Iterator[Promise]:
    """All of looking without bounds."""
    for name, draw in _DIFFERENCES.items():
        # Of 200 rows each has 1/199 of the error: whether any of them is missed is what 5% is about.
        for rows, cases in ((2, _CASES), (200, 2 * _CASES)):

            def missed(rng: Rng, runs: int, draw: Draw = draw, rows: int = rows, cases: int = cases) -> tuple[int, int]:
                values = draw(rng, (runs, cases))
                ever = np.zeros(runs, dtype=np.bool_)
                for seen in range(50, cases + 1, 10):
                    low, high = asymptotic(values[:, :seen], WRONG / (rows - 1), rows).T
                    ever |= (low > 0) | (high < 0)
                return int(ever.sum()), runs

            yield Promise(
                "looking after every ten cases: a sequence without bounds misses",
                name,
                f"{rows} rows, {cases} cases",
                missed,
                at_most=WRONG if rows == 2 else 0.005,
                runs=1_000,
            )
