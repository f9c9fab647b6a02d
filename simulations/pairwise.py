"""Comparisons of two rows at a time whose truth is known, by a judge to whom being shown first is worth something.

Answers of a row differ from case to case, so that all comparisons of a case have that in common. No model and no person
made any of these comparisons: they are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from simulations.promises import Promise
from wtb.analysis.judge_ranking import Comparisons, Numbers, Pairs, Strengths, could_be_best, race, strengths
from wtb.analysis.statistics import Floats

Rng = np.random.Generator
COVERS = 0.925

_ROWS = np.array([0.6, 0.4, 0.0, -0.2, -0.8])
_OWN, _TIE = 0.7, -0.5
_MANY = 4_000  # cases, of which the figures that all cases would give are known well enough
_CASES = 150


def promises() -> Iterator[Promise]:
    """All of comparisons."""
    yield from _figures()
    yield from _races()


def _compared(rng: Rng, own: Floats, bias: float, first: Numbers, second: Numbers, unit: Numbers) -> Comparisons:
    half = (own[unit, first] - own[unit, second] + bias) / 2
    odds = np.exp(np.stack([half, np.full(len(half), _TIE), -half]))
    ends = (odds / odds.sum(axis=0)).cumsum(axis=0)[:2]
    return Comparisons(first, second, 1 - (rng.random(len(half)) > ends).sum(axis=0), unit)


def _all_pairs(rng: Rng, truth: Floats, bias: float, cases: int) -> Comparisons:
    own = truth + rng.normal(0.0, _OWN, (cases, len(truth)))
    left, right = np.triu_indices(len(truth), 1)
    first, second = (np.tile(np.concatenate(pair), cases) for pair in ((left, right), (right, left)))
    return _compared(rng, own, bias, first, second, np.repeat(np.arange(cases), 2 * len(left)))


@cache
def _true_strengths(bias: float) -> Strengths:
    """Return the strengths over all cases, which are closer than those of the rows within a case."""
    return strengths(_all_pairs(np.random.default_rng(1), _ROWS, bias, _MANY), len(_ROWS))


def _holds(what: str, estimate: Strengths, bias: float, row: int) -> bool:
    if what == "places":
        place = 1 + int((_ROWS[row] < _ROWS).sum())
        return bool(estimate.rank[row, 0] <= place <= estimate.rank[row, 1])
    truth = _true_strengths(bias)
    low, high = estimate.interval[row] if what == "strengths" else estimate.first_interval
    return bool(low <= (truth.strength[row] if what == "strengths" else truth.first) <= high)


def _figures() -> Iterator[Promise]:
    for bias in (0.0, 1.0):
        for what in ("strengths", "places", "what being shown first is worth"):
            for cases in (20, 100):

                def covered(
                    rng: Rng, runs: int, bias: float = bias, what: str = what, cases: int = cases
                ) -> tuple[int, int]:
                    hits = 0
                    for run in range(runs):
                        estimate = strengths(_all_pairs(rng, _ROWS, bias, cases), len(_ROWS))
                        hits += _holds(what, estimate, bias, run % len(_ROWS))
                    return hits, runs

                yield Promise(
                    "figures of comparisons of two rows cover",
                    f"{what}, being shown first is worth {bias:g}",
                    f"{cases} cases",
                    covered,
                    at_least=COVERS,
                )


def _race(rng: Rng, truth: Floats, bias: float) -> tuple[Comparisons, bool]:
    own = truth + rng.normal(0.0, _OWN, (_CASES, len(truth)))

    def compare(unit: int, pairs: Pairs) -> Comparisons:
        first, second = np.array([pair for left, right in pairs for pair in ((left, right), (right, left))]).T
        return _compared(rng, own, bias, first, second, np.full(len(first), unit))

    return race(len(truth), range(_CASES), compare, rng)


def _races() -> Iterator[Promise]:
    situations = {
        "eight equal rows": np.zeros(8),
        "eight rows, each a little better than the next": np.linspace(0.0, 2.0, 8),
        "one of sixteen rows is better": np.array([1.5] + [0.0] * 15),
    }
    for situation, truth in situations.items():

        def ruled_out(rng: Rng, runs: int, truth: Floats = truth) -> tuple[int, int]:
            best = int(np.argmax(truth))
            return sum(not could_be_best(_race(rng, truth, 1.0)[0], len(truth))[best] for _ in range(runs)), runs

        def calls(rng: Rng, runs: int, truth: Floats = truth) -> tuple[int, int]:
            everything = len(truth) * (len(truth) - 1) * _CASES
            return sum(len(_race(rng, truth, 1.0)[0]) for _ in range(runs)), runs * everything

        def best_is_known(rng: Rng, runs: int, truth: Floats = truth) -> tuple[int, int]:
            return sum(_race(rng, truth, 1.0)[1] for _ in range(runs)), runs

        size = f"{_CASES} cases"
        claim = "the best row is ruled out while comparing what tells most"
        yield Promise(claim, situation, size, ruled_out, at_most=0.05, runs=400)
        yield Promise("the best row is known after comparing what tells most", situation, size, best_is_known, runs=200)
        yield Promise("calls to compare what tells most, of all pairs in both orders", situation, size, calls, runs=100)
