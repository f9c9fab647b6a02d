"""pass@k and pass^k over cases of unequal difficulty: coverage of intervals, and false differences of equal rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulations.promises import Promise
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.row_figures import over_repeats
from wtb.core.scoring.measure import Kind, Passes

Rng = np.random.Generator
_REPEATS = 5
_TRULY = 1_000_000


def promises() -> Iterator[Promise]:
    """All of figures over repeats."""
    kinds: tuple[Kind, ...] = ("pass@", "pass^")
    for kind in kinds:
        for k, cases in ((2, 50), (3, 50), (3, 200), (5, 200)):
            yield from _of(Passes(kind, k), cases)


def _rates(rng: Rng, cases: int) -> Floats:
    """Draw the pass rate of each case: some near 0, some near 1."""
    return rng.beta(1.0, 0.7, cases)


def _true(passes: Passes) -> float:
    rates = _rates(np.random.default_rng(7), _TRULY)
    return float((rates**passes.k).mean() if passes.kind == "pass^" else 1 - ((1 - rates) ** passes.k).mean())


def _pair(rng: Rng, passes: Passes, cases: int) -> Floats:
    """Two equal rows."""
    rates = _rates(rng, cases)
    passed = rng.binomial(_REPEATS, rates, (2, cases)) / _REPEATS
    return over_repeats(passes, passed, np.full((2, cases), _REPEATS))


def _of(passes: Passes, cases: int) -> Iterator[Promise]:
    true, size = _true(passes), f"{cases} cases, {_REPEATS} repeats"

    def covered(rng: Rng, runs: int) -> tuple[int, int]:
        hits = of = 0
        for _ in range(runs):
            ends = compare(_pair(rng, passes, cases), Design(ends=(0.0, 1.0))).rows[0].ci
            of += ends is not None
            hits += ends is not None and ends[0] <= true <= ends[1]
        return hits, of

    def starred(rng: Rng, runs: int) -> tuple[int, int]:
        comparisons = (compare(_pair(rng, passes, cases), Design(baseline=0, seed=run)) for run in range(runs))
        return sum(comparison.rows[1].p is not None and comparison.rows[1].p < 0.05 for comparison in comparisons), runs

    yield Promise("intervals of pass@k and pass^k cover", str(passes), size, covered, at_least=0.93, runs=400)
    yield Promise(
        "a difference is seen between equal rows by pass@k", str(passes), size, starred, at_most=0.05, runs=400
    )
