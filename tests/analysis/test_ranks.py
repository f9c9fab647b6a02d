"""Candidates for the best and possible ranks agree with a direct implementation of their definition."""

from __future__ import annotations

import numpy as np
import pytest

from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.best import FLIPS, LEVEL, rank
from wtb.analysis.statistics.paired import flips

_PLACES = 9  # decimals of a gap in spreads: those that differ by less are equal


def _passes(seed: int, rows: int = 25, cases: int = 30) -> Floats:
    """Pass rates, of which some are alike in every case."""
    rng = np.random.default_rng(seed)
    scores = (rng.random((rows, cases)) < rng.random((rows, 1))).astype(float)
    scores[rows // 2 :: 3] = scores[0]
    return scores


def _by_definition(scores: Floats, seed: int) -> tuple[Floats, Floats]:
    """(candidates, ranks): every row against every other, flip by flip."""
    rows, cases = scores.shape
    signs = flips(cases, FLIPS, np.random.default_rng([seed, 3]), np.int8)
    beaten, last = np.zeros(rows, dtype=int), np.zeros(rows, dtype=int)
    for row in range(rows):
        behind = scores - scores[row]
        spread = np.sqrt((behind**2).sum(axis=1))
        spread[spread == 0] = np.inf
        limit = np.quantile((signs @ behind.T / spread).max(axis=1), LEVEL)
        gaps = behind.sum(axis=1) / spread
        beaten[row] = (np.round(gaps - limit, _PLACES) > 0).sum()
        last[row] = rows - (np.round(-gaps - limit, _PLACES) > 0).sum()
    return beaten == 0, np.stack([1 + beaten, last], axis=1)


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_ranked_as_defined_and_those_that_are_alike_alike(seed: int) -> None:
    scores = _passes(seed)
    candidates, ranks = _by_definition(scores, seed)
    ranking = rank(scores, seed)
    assert not candidates.all(), "some row is beaten, or nothing would be shown"
    assert ranking.candidates.tolist() == candidates.tolist()
    assert ranking.ranks.tolist() == ranks.tolist()
    alike = [0, *range(len(scores) // 2, len(scores), 3)]
    assert len(np.unique(ranking.ranks[alike], axis=0)) == 1


def test_a_tie_is_not_decided_by_rounding() -> None:
    """With few cases, many pass rates lead by exactly as much as chance can at most."""
    for seed in range(40):
        scores = _passes(seed, rows=20, cases=10 + seed)
        ranking, shifted = rank(scores, seed), rank(scores + 0.1, seed)
        assert ranking.ranks.tolist() == shifted.ranks.tolist()
        assert ranking.candidates.tolist() == shifted.candidates.tolist()
