"""Small gains in every case are not claimed if a loss that is too rare to show could cancel them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.comparison.regressions import Question, answer
from wtb.analysis.statistics import Design, compare
from wtb.analysis.statistics.claims import could_cancel, one_in, p_of_unseen
from wtb.core.scoring.failure_scores import unseen


def small_gains(cases: int, gain: float = 0.05) -> np.ndarray:
    drawn = np.random.default_rng(4)
    base = drawn.random(cases) * 0.5
    return np.stack([base, base + gain + 0.001 * drawn.normal(size=cases)])


def verdict(gains: np.ndarray, **options: float) -> tuple[str, int | None]:
    row = answer({"m": Question(gains[None], **options)})["m"].rows[0]  # type: ignore[arg-type]
    return row.verdict, row.unseen


def test_small_gains_in_few_cases_get_no_star() -> None:
    scores = small_gains(30)
    free = compare(scores, Design(baseline=0))
    assert free.clear, "without a scale nothing limits a loss"
    comparison = compare(scores, Design(baseline=0, ends=(0.0, 1.0)))
    row = comparison.rows[1]
    assert (row.unseen, comparison.clear, comparison.best) == (10, False, 1)
    assert row.p_adjusted > 0.05
    assert comparison.lead.because == sentence(
        "a {} rarer than 1 in {} cases cannot show here and could cancel {} this small", "loss", 10, "gains"
    )


def test_the_same_gains_in_many_cases_are_claimed() -> None:
    comparison = compare(small_gains(100), Design(baseline=0, ends=(0.0, 1.0)))
    assert comparison.clear
    assert comparison.rows[1].unseen is None


def test_passes_and_failures_are_not_small() -> None:
    scores = np.zeros((2, 30))
    scores[1, :8] = 1
    comparison = compare(scores, Design(baseline=0, ends=(0.0, 1.0)))
    assert comparison.rows[1].unseen is None
    assert comparison.clear


def test_verdicts_of_two_nights_are_unclear_both_ways() -> None:
    gains = np.diff(small_gains(30), axis=0)[0]
    assert verdict(gains) == ("better", None)
    assert verdict(gains, span=1.0) == ("unclear", 10)
    assert verdict(-gains, span=1.0) == ("unclear", 10)
    assert verdict(-4 * gains, span=1.0) == ("worse", None)
    assert verdict(-gains / 10, span=1.0, margin=0.02) == ("unclear", 10)
    assert verdict(-gains / 10, span=1.0, margin=0.2) == ("not worse", None)


def test_few_cases_that_make_much_of_a_difference_are_told() -> None:
    scores = small_gains(30)
    assert compare(scores, Design(baseline=0)).uneven == ()
    scores[1, 0] = scores[0, 0]  # one case that does not differ makes nothing of it, though it is far from the others
    assert compare(scores, Design(baseline=0)).uneven == ()
    scores[1, :3] += 0.4
    assert compare(scores, Design(baseline=0)).uneven == (1,)
    assert compare(small_gains(30) + np.random.default_rng(1).normal(size=(2, 30)), Design(baseline=0)).uneven == ()


@pytest.mark.parametrize(("cases", "rare"), [(30, 10), (31, 11), (2, 1)])
def test_the_rule_of_three(cases: int, rare: int) -> None:
    assert one_in(cases) == rare
    assert p_of_unseen(np.full(cases, 0.05), 1.0, side=1) == pytest.approx(0.95**cases)
    assert could_cancel(np.full(cases, 2.9 / cases), 1.0, side=1)
    assert not could_cancel(np.full(cases, 3.1 / cases), 1.0, side=1)
    assert not could_cancel(np.full(cases, 0.01), None, side=1)


def test_the_words() -> None:
    words = "a gain rarer than 1 in 7 cases cannot show here and could cancel losses this small"
    assert unseen(7, is_gain=False) == words
