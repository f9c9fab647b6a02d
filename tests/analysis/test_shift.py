"""Durations are compared by their typical difference, which a few outliers hardly change."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # its parts are imported when they are used
from hypothesis import given, settings
from hypothesis import strategies as st

from wtb.analysis.statistics import Design, compare
from wtb.analysis.statistics.paired import paired_tests, shifts, signed_ranks

FIGURES = st.lists(st.integers(-6, 6) | st.floats(-1e6, 1e6, width=32), min_size=1, max_size=60)


def averages(differences: np.ndarray) -> np.ndarray:
    """The averages of all pairs, including each value with itself, sorted."""
    first, second = np.triu_indices(differences.size)
    return np.sort((differences[first] + differences[second]) / 2)


@settings(max_examples=150, deadline=None)
@given(FIGURES)
def test_the_typical_difference_is_the_median_of_the_averages_of_any_two(figures: list[float]) -> None:
    differences = np.array(figures, dtype=float)
    (shift,), _ = shifts(differences[None])
    assert shift == pytest.approx(np.median(averages(differences)), rel=1e-9, abs=1e-9 * np.abs(differences).max())


@pytest.mark.parametrize(
    "differences",
    [
        np.random.default_rng(1).lognormal(0, 2, 700) - 3,
        np.random.default_rng(2).integers(-3, 4, 900).astype(float),  # nearly all averages are ties
        np.where(np.arange(800) % 10, 0.0, np.random.default_rng(3).normal(size=800)),
        np.random.default_rng(4).standard_cauchy(600) * 1e6,
        1 + np.random.default_rng(5).normal(size=500) * 1e-9,
        np.concatenate([np.random.default_rng(6).normal(-50, 1, 300), np.random.default_rng(7).normal(50, 1, 300)]),
    ],
    ids=["skewed", "whole numbers", "mostly 0", "far ones", "nearly equal", "two heaps"],
)
def test_many_averages_are_found_by_counting_whatever_their_shape(differences: np.ndarray) -> None:
    every, largest = averages(differences), np.abs(differences).max()
    n = differences.size
    outside = math.ceil(n * (n + 1) / 4 - scipy.stats.norm.ppf(0.975) * math.sqrt(n * (n + 1) * (2 * n + 1) / 24) - 0.5)
    (shift,), (ends,) = shifts(differences[None])
    assert shift == pytest.approx(np.median(every), rel=1e-12, abs=1e-13 * largest)
    assert ends == pytest.approx([every[outside - 1], every[-outside]], rel=1e-12, abs=1e-13 * largest)


@pytest.mark.parametrize("n", [6, 12, 40, 300])
def test_its_interval_is_what_wilcoxons_test_does_not_refuse(n: int) -> None:
    differences = np.random.default_rng(n).lognormal(size=n) - 1.2
    _, ends = shifts(differences[None])
    low, high = ends[0]

    def p(shift: float) -> float:
        return float(scipy.stats.wilcoxon(differences - shift, method="exact" if n <= 50 else "approx").pvalue)

    assert min(p(low + 1e-9), p(high - 1e-9)) > 0.0499
    assert max(p(low - 1e-9), p(high + 1e-9)) < 0.0501


def test_far_ones_move_neither_the_figure_nor_the_interval_by_much() -> None:
    differences = np.random.default_rng(1).normal(0.1, 0.05, size=(1, 40))
    far = differences.copy()
    far[0, :4] = [5.0, 4.0, 6.0, 5.5]
    (before,), (after,) = paired_tests(differences, compare="median"), paired_tests(far, compare="median")
    assert before.delta == pytest.approx(after.delta, abs=0.03)
    assert 0 < after.ci[0] < 0.1 < after.ci[1] < 0.2
    (mean,) = paired_tests(far)
    assert mean.delta > 0.5


@pytest.mark.parametrize("n", [8, 13])
def test_its_test_is_wilcoxons(n: int) -> None:
    differences = np.random.default_rng(n).normal(0.4, 1, size=n)
    (test,) = paired_tests(differences[None], compare="median")
    assert test.p == pytest.approx(scipy.stats.wilcoxon(differences, method="exact").pvalue)


def test_ranks_are_shared_by_equal_sizes_and_pairs_that_agree_have_none() -> None:
    ranks = signed_ranks(np.array([[0.0, -2.0, 2.0, 5.0, np.nan, 1.0]]))
    assert ranks[0].tolist()[:4] == [0.0, -2.5, 2.5, 4.0]
    assert math.isnan(ranks[0, 4])
    assert ranks[0, 5] == 1.0


def test_of_few_or_equal_pairs_there_is_a_figure_and_no_interval() -> None:
    for differences in ([0.1, 0.2, 0.3, 0.1, 0.2], [0.5] * 30):
        (test,) = paired_tests(np.array([differences]), compare="median")
        assert test.delta is not None
        assert (test.ci, test.spread, test.effect) == (None, None, None)


def test_intervals_of_the_typical_difference_hold_95_times_of_100_and_equal_variants_are_equal() -> None:
    rng = np.random.default_rng(7)
    drawn = rng.lognormal(0, 1, size=(400, 40)) - rng.lognormal(0, 1, size=(400, 40))
    tests = paired_tests(drawn, compare="median")
    inside = np.mean([test.ci is not None and test.ci[0] <= 0 <= test.ci[1] for test in tests])
    alarms = np.mean([test.p is not None and test.p < 0.05 for test in tests])
    assert 0.92 <= inside <= 0.98
    assert 0.02 <= alarms <= 0.08


def test_who_pays_the_warm_up_is_not_told_as_slower() -> None:
    rng = np.random.default_rng(3)
    seconds = rng.lognormal(math.log(0.0005), 0.3, size=(3, 40))
    seconds[0, :4] += 0.4  # what the first runs of four processes cost
    comparison = compare(seconds, Design(baseline=0, better="lower", by="median"))
    assert not comparison.clear
    assert all(row.p is None or row.p > 0.05 for row in comparison.rows)
    assert all(row.delta is None or abs(row.delta) < 0.0003 for row in comparison.rows)
    assert comparison.rows[0].mean == pytest.approx(seconds[0].mean())  # what is shown of a row alone is its mean


def test_many_pairs_are_compared_without_all_their_averages() -> None:
    differences = np.random.default_rng(5).normal(0.02, 1, size=(1, 60_000))
    (shift,), ((low, high),) = shifts(differences)
    assert low < shift < high
    assert shift == pytest.approx(0.02, abs=0.02)
