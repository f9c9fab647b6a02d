"""Each promise of docs/statistics.md in one situation and in small: `make simulate` does it in all of them."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.experiments import promises
from simulations.promises import Found, Promise

RUNS = 30

FIRST = {promise.claim: promise for promise in reversed(list(promises()))}


@pytest.mark.parametrize("promise", [pytest.param(promise, id=claim) for claim, promise in reversed(FIRST.items())])
def test_a_promise_is_not_broken_by_more_than_chance(promise: Promise) -> None:
    found = Found(promise, *promise.count(np.random.default_rng(7), RUNS))
    assert not found.broken, found


def test_a_broken_promise_is_seen() -> None:
    promise = Promise("a coin falls on heads", "a coin", "30 throws", lambda rng, runs: (runs, runs), at_most=0.5)
    assert Found(promise, 30, 30).broken == "too many"
    assert Found(promise, 16, 30).broken is None
