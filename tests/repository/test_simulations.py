"""Each promise of docs/statistics.md in one situation and in small: `make simulate` does it in all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulations.experiments import promises
from simulations.promises import Found, Promise
from simulations.tables import BEGIN, END, partly, render, replace

RUNS = 30

FIRST = {promise.claim: promise for promise in reversed(list(promises()))}


@pytest.mark.slow  # CI simulates every promise that has a bound, by `make simulate-some`
@pytest.mark.parametrize("promise", [pytest.param(promise, id=claim) for claim, promise in reversed(FIRST.items())])
def test_a_promise_is_not_broken_by_more_than_chance(promise: Promise) -> None:
    finding = Found(promise, *promise.count(np.random.default_rng(7), RUNS))
    assert not finding.broken, finding


def test_a_broken_promise_is_seen() -> None:
    promise = Promise("a coin falls on heads", "a coin", "30 throws", lambda rng, runs: (runs, runs), at_most=0.5)
    assert Found(promise, 30, 30).broken == "too many"
    assert Found(promise, 16, 30).broken is None


def test_tables_of_some_promises_take_the_place_of_their_like(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"above\n{BEGIN}\n{END}\nbelow\n", "utf-8")
    coins = [Promise(f"coins of {side} fall", "a coin", "30 throws", lambda rng, runs: (runs, runs)) for side in "ab"]
    replace(page, render([Found(coin, 15, 30) for coin in coins]), whole=True)
    replace(page, render([Found(coins[1], 3, 30)]), whole=False)
    text = page.read_text("utf-8")
    assert [text.count(figure) for figure in ("50.0", "10.0", "above", "below", "coins of")] == [1, 1, 1, 1, 2]
    third = Promise("coins of c fall", "a coin", "30 throws", coins[0].count)
    replace(page, render([Found(third, 6, 30)]), whole=False)
    text = page.read_text("utf-8")
    assert [text.count(figure) for figure in ("50.0", "10.0", "20.0", "coins of")] == [1, 1, 1, 3]
    assert text.index("coins of b") < text.index("coins of c") < text.index(END)
    assert partly(coins[1:], coins) == []
    assert partly([FIRST["intervals of means cover"]], list(promises())) != []
