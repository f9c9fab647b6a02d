"""Equal inputs under several ids count as one cluster: equal rows differ as rarely as over different inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulations.promises import Promise
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.intervals import Units, numbered
from wtb.core.serialization.codec import encode
from wtb.planning.equal_inputs import Inputs

Rng = np.random.Generator


def promises() -> Iterator[Promise]:
    """All of equal inputs."""
    for agreeing in (1.0, 0.7):
        for rows in (2, 6):
            yield from _repeated(rows, inputs=20, ids=5, agreeing=agreeing)
    yield from _repeated(2, inputs=60, ids=2, agreeing=1.0)


def _units(inputs: int, ids: int) -> Units:
    """The clusters that a sweep over such cases has, as its cases are checked."""
    seen = Inputs()
    for number in np.repeat(np.arange(inputs), ids).tolist():
        seen.add(encode({"input": {"x": number}, "expected": None}), {})
    return numbered(seen.equal([None] * (inputs * ids)).clusters)


def _scores(rng: Rng, rows: int, inputs: int, ids: int, agreeing: float) -> Floats:
    """Pass or fail by equal rows; a case passes as the others of its input do, in a share of them."""
    rates = np.tile(rng.beta(2.0, 1.0, inputs), (rows, 1))
    of_inputs = np.repeat(rng.random((rows, inputs)) < rates, ids, axis=1)
    fresh = rng.random((rows, inputs * ids)) < np.repeat(rates, ids, axis=1)
    return np.where(rng.random(fresh.shape) < agreeing, of_inputs, fresh).astype(float)


def _repeated(rows: int, inputs: int, ids: int, agreeing: float) -> Iterator[Promise]:
    units = _units(inputs, ids)
    situation = f"{inputs} inputs {ids} times each, {agreeing:.0%} of answers repeat"

    def starred(rng: Rng, runs: int) -> tuple[int, int]:
        hits = 0
        for run in range(runs):
            scores = _scores(rng, rows, inputs, ids, agreeing)
            comparison = compare(scores, Design(units=units, baseline=0, seed=run, ends=(0.0, 1.0)))
            hits += any((row.p_adjusted or 1.0) < 0.05 for row in comparison.rows)
        return hits, runs

    def covered(rng: Rng, runs: int) -> tuple[int, int]:
        hits = 0
        for run in range(runs):
            scores = _scores(rng, rows, inputs, ids, agreeing)
            ends = compare(scores, Design(units=units, seed=run, ends=(0.0, 1.0))).rows[0].ci
            hits += ends is not None and ends[0] <= 2 / 3 <= ends[1]
        return hits, runs

    size = f"{rows} rows"
    yield Promise(
        "a difference is seen between equal rows over equal inputs", situation, size, starred, at_most=0.05, runs=400
    )
    yield Promise("intervals over equal inputs cover", situation, size, covered, at_least=0.93, runs=400)
