"""Rows are ranked by pairwise comparisons, which these tests simulate."""

from __future__ import annotations

import numpy as np
import pytest

from wtb.analysis.judge_ranking import Comparisons, Pairs, could_be_best, joined, next_pairs, race, strengths


def comparisons(*rows: tuple[int, int, int, int]) -> Comparisons:
    return Comparisons(*np.array(rows, dtype=np.int64).T)


def swapped(unit: int, first: int, second: int, outcome: int) -> list[tuple[int, int, int, int]]:
    return [(first, second, outcome, unit), (second, first, -outcome, unit)]


def drawn(truth: list[float], bias: float, cases: int, seed: int = 1) -> Comparisons:
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(len(truth)) for j in range(len(truth)) if i != j]
    rows = []
    for unit in range(cases):
        for i, j in pairs:
            half = (truth[i] - truth[j] + bias) / 2
            odds = np.exp([half, -half, -0.5])
            rows.append((i, j, int(rng.choice([1, -1, 0], p=odds / odds.sum())), unit))
    return comparisons(*rows)


def test_strengths_are_where_what_was_seen_is_what_is_expected() -> None:
    """The maximum of such a likelihood is where the wins and ties of each kind equal their expectation."""
    sample = drawn([0.8, 0.2, -1.0], 0.6, 60)
    fitted = strengths(sample, 3)
    half = (fitted.strength[sample.first] - fitted.strength[sample.second] + fitted.first) / 2
    ties = (sample.result == 0).mean()
    low, high = -5.0, 5.0
    for _ in range(60):  # the parameter of ties, which `strengths` does not return
        middle = (low + high) / 2
        expected = (np.exp(middle) / (np.exp(half) + np.exp(-half) + np.exp(middle))).mean()
        low, high = (middle, high) if expected < ties else (low, middle)
    lead = 2 * np.sinh(half) / (2 * np.cosh(half) + np.exp(low))
    assert sample.result.sum() == pytest.approx(lead.sum(), abs=1)
    for row in range(3):
        own = np.where(sample.first == row, 1, np.where(sample.second == row, -1, 0))
        assert (own * sample.result).sum() == pytest.approx((own * lead).sum(), abs=1)


def test_a_judge_that_always_prefers_the_first_says_nothing_of_rows_and_the_bias_is_found() -> None:
    fitted = strengths(comparisons(*(row for unit in range(20) for row in ((0, 1, 1, unit), (1, 0, 1, unit)))), 2)
    assert fitted.strength == pytest.approx([0, 0], abs=1e-6)
    assert fitted.rank.tolist() == [[1, 2], [1, 2]]
    assert fitted.first_interval[0] > 0.5


def test_places_are_as_narrow_as_what_was_seen_allows() -> None:
    assert strengths(drawn([2.0, 0.0, -2.0], 0.5, 60), 3).rank.tolist() == [[1, 1], [2, 2], [3, 3]]
    few = strengths(drawn([2.0, 0.0, -2.0], 0.5, 4), 3)
    assert few.rank.tolist() == [[1, 3]] * 3
    assert np.isnan(few.interval).all()


def test_a_row_that_never_lost_has_a_strength_and_three_cases_prove_nothing() -> None:
    fitted = strengths(comparisons(*(row for unit in range(6) for row in swapped(unit, 0, 1, 1))), 2)
    assert np.isfinite(fitted.strength).all()
    assert not np.isnan(fitted.interval).any()
    for units, other in ((3, True), (40, False)):
        won = comparisons(*(row for unit in range(units) for row in swapped(unit, 0, 1, 1)))
        assert could_be_best(won, 2).tolist() == [True, other]


def test_comparisons_of_one_case_are_no_news_of_others() -> None:
    """Ten times as many comparisons of each case do not shorten an interval to a third."""
    single = drawn([0.5, 0.0], 0.0, 30)
    ten = joined([single] * 10)
    (low, high), (low_of_ten, high_of_ten) = strengths(single, 2).interval[0], strengths(ten, 2).interval[0]
    assert high_of_ten - low_of_ten > 0.8 * (high - low)


def test_a_race_asks_only_about_rows_that_could_be_the_best_and_ends_when_it_is_known() -> None:
    rounds: list[Pairs] = []

    def compare(unit: int, pairs: Pairs) -> Comparisons:
        rounds.append(pairs)
        return comparisons(
            *(row for first, other in pairs for row in swapped(unit, first, other, 1 if first < other else -1))
        )

    sample, is_known = race(8, range(100), compare, np.random.default_rng(1))
    assert is_known
    assert len(rounds) < 60
    assert could_be_best(sample, 8).tolist() == [True] + [False] * 7
    assert len(rounds[0]) == 4, "who meets first is drawn"
    assert all(0 in pair for pair in rounds[-1]), "the strongest meets the others"
    assert not next_pairs(sample, 8, np.random.default_rng(1))


def test_a_race_ends_without_an_answer_where_no_more_may_be_asked() -> None:
    sample, is_known = race(3, range(9), lambda unit, pairs: None, np.random.default_rng(1))
    assert (len(sample), is_known) == (0, False)
