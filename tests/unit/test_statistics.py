"""The statistics agree with scipy where it can do the same, and stay honest where it cannot."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from wtb import statistics
from wtb.statistics import RESAMPLES, Comparison, Estimate, Floats, compare, holm, wilson

# Quarters, so that sums, shifts and sign changes are exact in floating point.
QUARTERS = st.integers(-400, 400).map(lambda k: k / 4)
SCORES = arrays.arrays(
    np.float64,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=40),
    elements=st.one_of(QUARTERS, st.just(math.nan)),
    fill=QUARTERS,
)


def numbers(comparison: Comparison) -> list[float]:
    """Every number in all rows."""
    found: list[float] = []
    for row in comparison.rows:
        for value in dataclasses.astuple(row):
            found.extend(value if isinstance(value, tuple) else [] if value is None else [value])
    return found


def paired(n: int, seed: int = 0, lead: float = 0.3) -> Floats:
    rng = np.random.default_rng(seed)
    easy = rng.normal(size=n)
    return np.stack([easy + rng.normal(size=n), easy + rng.normal(size=n) + lead])


# Intervals


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("n", [30, 37, 200])
def test_from_30_cases_on_the_interval_is_the_bca_bootstrap_of_scipy(n: int, skewed: bool) -> None:
    scores = np.exp(paired(n)) if skewed else paired(n)
    rows = compare(scores, baseline=0).rows
    for data, ours in ((scores[1], rows[1].ci), (scores[1] - scores[0], rows[1].delta_ci)):
        theirs = scipy.stats.bootstrap((data,), np.mean, method="BCa", n_resamples=RESAMPLES, rng=7)
        width = theirs.confidence_interval.high - theirs.confidence_interval.low
        assert ours == pytest.approx(tuple(theirs.confidence_interval), abs=0.05 * width)


def test_a_row_that_misses_cases_gets_the_interval_of_the_cases_it_has() -> None:
    scores = np.exp(paired(200))
    gaps = scores.copy()
    gaps[1, ::4] = np.nan
    row = compare(gaps, baseline=0).rows[1]
    kept = ~np.isnan(gaps[1])
    alone = compare(scores[:, kept], baseline=0).rows[1]
    assert (row.n, row.n_pairs, row.mean, row.delta) == (150, 150, alone.mean, alone.delta)
    assert row.ci is not None
    assert alone.ci is not None
    assert row.ci == pytest.approx(alone.ci, abs=0.05 * (alone.ci[1] - alone.ci[0]))


def test_beyond_2000_cases_the_expansion_agrees_with_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.exp(paired(2_000, lead=0.0))
    bootstrap = compare(scores, baseline=0).rows[1]
    monkeypatch.setattr(statistics, "BOOTSTRAP_TO", 1_000)
    expansion = compare(scores, baseline=0).rows[1]
    assert bootstrap.ci is not None
    assert expansion.ci == pytest.approx(bootstrap.ci, abs=0.04 * (bootstrap.ci[1] - bootstrap.ci[0]))
    assert expansion.p == pytest.approx(bootstrap.p, abs=0.02)


@pytest.mark.parametrize("n", range(2, 30))
def test_below_30_cases_the_interval_is_students_t(n: int) -> None:
    scores = paired(n)
    expected = scipy.stats.ttest_1samp(scores[1], 0.0).confidence_interval(0.95)
    assert compare(scores).rows[1].ci == pytest.approx(tuple(expected), rel=1e-6)


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 2), (7, 10), (10, 10), (90, 100), (1, 3000)])
def test_scores_of_0_and_1_get_the_wilson_interval(successes: int, n: int) -> None:
    expected = scipy.stats.binomtest(successes, n).proportion_ci(method="wilson")
    row = np.zeros((1, n))
    row[0, :successes] = 1.0
    assert compare(row).rows[0].ci == pytest.approx(tuple(expected), abs=1e-12)
    assert wilson(successes, n) == pytest.approx(tuple(expected), abs=1e-12)


def test_a_cost_of_nothing_in_every_case_is_a_constant_and_not_a_rate() -> None:
    assert compare(np.zeros((2, 20)), better="lower").rows[0].ci is None
    assert compare(np.zeros((2, 20)), better="higher").rows[0].ci is not None
    assert compare(np.eye(2, 20), better="lower").rows[0].ci == wilson(1, 20)


@pytest.mark.parametrize("n", [10, 100])
def test_the_interval_for_normal_scores_covers_the_truth_95_times_of_100(n: int) -> None:
    samples = 1_500
    rows = compare(np.random.default_rng(3).normal(size=(samples, n))).rows
    covered = sum(row.ci is not None and row.ci[0] <= 0.0 <= row.ci[1] for row in rows)
    # BCa itself covers 94% to 95% at n = 100: four standard errors below, three above.
    error = math.sqrt(0.95 * 0.05 / samples)
    assert 0.95 - 4 * error <= covered / samples <= 0.95 + 3 * error


# Tests against the baseline


@pytest.mark.parametrize("n", [2, 5, 13])
def test_few_pairs_are_tested_over_every_flip(n: int) -> None:
    scores = paired(n)
    assert compare(scores, baseline=0).rows[1].p == pytest.approx(scipy_p(scores), abs=1e-12)


@pytest.mark.parametrize(("n", "lead"), [(14, 0.5), (37, 0.3), (200, 0.1)])
def test_many_pairs_are_tested_over_random_flips(n: int, lead: float) -> None:
    scores = paired(n, lead=lead)
    expected = scipy_p(scores)
    error = math.sqrt(expected * (1 - expected) / RESAMPLES)
    assert compare(scores, baseline=0).rows[1].p == pytest.approx(expected, abs=6 * error + 1e-4)


def scipy_p(scores: Floats) -> float:
    test = scipy.stats.permutation_test(
        (scores[1] - scores[0],), np.mean, permutation_type="samples", n_resamples=RESAMPLES, rng=5
    )
    return float(test.pvalue)


def test_pairs_that_agree_do_not_change_the_exact_p() -> None:
    scores = np.zeros((2, 1000))
    scores[1, :10] = 1.0
    row = compare(scores, baseline=0).rows[1]
    assert row.p == 2 / 2**10
    assert row.n_pairs == 1000


def test_p_of_random_flips_is_never_zero() -> None:
    rows = compare(np.stack([np.zeros(50), np.linspace(1, 2, 50)]), baseline=0).rows
    assert rows[1].p == 1 / (RESAMPLES + 1)
    rows = compare(np.stack([np.zeros(5000), np.linspace(1, 2, 5000)]), baseline=0).rows
    assert rows[1].p == 1 / (RESAMPLES + 1)


def test_differences_that_are_rounding_errors_are_no_differences() -> None:
    scores = np.stack([np.full(40, 0.3), np.full(40, 0.1 + 0.2)])
    row = compare(scores, baseline=0).rows[1]
    assert (row.delta, row.delta_ci, row.p) == (0.0, None, 1.0)


def test_under_the_null_p_is_below_5_percent_in_5_percent() -> None:
    rng = np.random.default_rng(11)
    scores = np.vstack([np.zeros(37), rng.normal(size=(1_000, 37))])
    rejected = sum(row.p is not None and row.p < 0.05 for row in compare(scores, baseline=0).rows)
    assert rejected / 1_000 == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 1_000))


def test_holm_on_a_known_example() -> None:
    # The p-values of the worked example on Wikipedia, "Holm-Bonferroni method", adjusted by hand.
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]
    with_gap = holm(np.array([0.01, math.nan, 0.03]))
    assert with_gap[[0, 2]].tolist() == [0.02, 0.03]
    assert math.isnan(with_gap[1])


def test_p_is_adjusted_over_the_combinations_of_the_metric() -> None:
    scores = np.vstack([paired(40), paired(40, seed=1)[1:], np.full((1, 40), np.nan)])
    rows = compare(scores, baseline=0).rows
    tested = holm(np.array([rows[1].p, rows[2].p], dtype=np.float64))
    assert [row.p_adjusted for row in rows] == [None, *tested.tolist(), None]


# The best


def test_the_best_is_clear_when_it_beats_every_other() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4, 40)) * 0.1
    scores[2] += 1.0
    assert best(scores) == (2, True)
    scores[3] = scores[2] + rng.normal(size=40) * 0.1
    assert best(scores)[1] is False


def test_the_direction_decides_which_is_best() -> None:
    scores = np.stack([np.linspace(1, 2, 40), np.linspace(2, 4, 40)])
    assert best(scores) == (1, True)
    comparison = compare(scores, better="lower")
    assert (comparison.best, comparison.clear) == (0, True)


def test_the_first_of_equals_is_best_and_not_clear() -> None:
    scores = np.array([[0.1, 0.2, 0.7], [0.7, 0.1, 0.2], [0.0, 0.0, 0.0]])
    assert best(scores) == (0, False)


def test_a_combination_without_scores_is_no_rival() -> None:
    scores = np.vstack([np.full((1, 20), np.nan), np.linspace(0, 1, 20), np.linspace(1, 2, 20)])
    assert best(scores) == (2, True)


def test_a_lead_over_other_cases_is_not_clear() -> None:
    scores = np.full((2, 40), np.nan)
    scores[0, :20], scores[1, 20:] = 0.0, 1.0
    assert best(scores) == (1, False)


def test_noise_seldom_has_a_clear_best() -> None:
    rng = np.random.default_rng(2)
    clear = [compare(rng.normal(size=20) + rng.normal(size=(3, 20))).clear for _ in range(200)]
    assert sum(clear) / 200 <= 0.05


def best(scores: Floats) -> tuple[int | None, bool]:
    comparison = compare(scores)
    return comparison.best, comparison.clear


# Honest None


def test_one_case_has_a_mean_and_nothing_else() -> None:
    comparison = compare(np.array([[0.2], [0.9]]), baseline=0)
    assert comparison.rows[0] == Estimate(1, 0, 0.2, None, None, None, None, None)
    assert comparison.rows[1] == Estimate(1, 1, 0.9, None, 0.9 - 0.2, None, None, None)
    assert (comparison.best, comparison.clear) == (1, False)


def test_one_combination_has_no_rival() -> None:
    comparison = compare(np.array([[0.2, 0.4, 0.9]]), baseline=0)
    assert comparison.rows[0].ci is not None
    assert comparison.rows[0].delta is None
    assert (comparison.best, comparison.clear) == (0, False)


def test_scores_that_do_not_vary_have_no_interval() -> None:
    comparison = compare(np.array([[0.5] * 40, [0.7] * 40]), baseline=0)
    assert comparison.rows[1].ci is None
    assert comparison.rows[1].delta_ci is None
    assert comparison.rows[1].delta == pytest.approx(0.2)
    assert (comparison.best, comparison.clear) == (1, True)


def test_rows_without_scores_are_empty() -> None:
    comparison = compare(np.full((2, 5), np.nan), baseline=1)
    assert comparison.rows[0] == Estimate(0, 0, None, None, None, None, None, None)
    assert (comparison.best, comparison.clear) == (None, False)
    assert compare(np.empty((0, 5))).rows == ()
    assert compare(np.empty((3, 0)), baseline=0).rows[2].n == 0


def test_without_a_baseline_nothing_is_compared_with_it() -> None:
    row = compare(paired(40)).rows[0]
    assert (row.n_pairs, row.delta, row.delta_ci, row.p, row.p_adjusted) == (0, None, None, None, None)
    assert row.ci is not None


def test_scores_that_are_not_finite_are_missing() -> None:
    row = compare(np.array([[1.0, math.inf, 3.0, -math.inf, 1e300]])).rows[0]
    assert (row.n, row.mean) == (2, 2.0)


@pytest.mark.parametrize("scale", [1e-90, 1e-50, 1e50, 1e99])
@pytest.mark.parametrize("n", [20, 40])
def test_the_scale_of_the_scores_does_not_matter(scale: float, n: int) -> None:
    scores = paired(n)
    plain, scaled = compare(scores, baseline=0).rows[1], compare(scores * scale, baseline=0).rows[1]
    assert plain.delta_ci is not None
    assert scaled.delta_ci == pytest.approx(tuple(end * scale for end in plain.delta_ci))
    assert scaled.p == plain.p


@settings(max_examples=60, deadline=None)
@given(SCORES, st.data())
def test_no_number_is_ever_nan(scores: Floats, data: st.DataObject) -> None:
    baseline = data.draw(st.one_of(st.none(), st.integers(0, len(scores) - 1)))
    comparison = compare(scores, baseline=baseline)
    assert all(math.isfinite(number) for number in numbers(comparison))
    for row in comparison.rows:
        assert row.p is None or 0 < row.p <= (row.p_adjusted or 0) <= 1
        assert row.ci is None or row.ci[0] < row.ci[1]


@settings(max_examples=40, deadline=None)
@given(SCORES, QUARTERS)
def test_a_shift_moves_the_means_and_leaves_the_differences(scores: Floats, shift: float) -> None:
    plain, moved = compare(scores, baseline=0), compare(scores + shift, baseline=0)
    assert moved.best == plain.best
    for before, after in zip(plain.rows, moved.rows, strict=True):
        assert after.mean == (None if before.mean is None else pytest.approx(before.mean + shift))
        assert (after.delta, after.delta_ci, after.p) == (before.delta, before.delta_ci, before.p)


@settings(max_examples=40, deadline=None)
@given(SCORES)
def test_the_test_does_not_care_about_the_sign(scores: Floats) -> None:
    plain, turned = compare(scores, baseline=0), compare(-scores, baseline=0, better="lower")
    assert (turned.best, turned.clear) == (plain.best, plain.clear)
    for before, after in zip(plain.rows, turned.rows, strict=True):
        assert (after.p, after.p_adjusted) == (before.p, before.p_adjusted)
        assert after.delta == (None if before.delta is None else -before.delta)


def test_the_same_seed_gives_the_same_numbers() -> None:
    scores = paired(60)
    assert compare(scores, baseline=0, seed=4) == compare(scores, baseline=0, seed=4)
    assert compare(scores, baseline=0, seed=4) != compare(scores, baseline=0, seed=5)


def test_a_row_does_not_depend_on_the_others() -> None:
    scores = np.vstack([paired(60), paired(60, seed=1)])
    few, all_rows = compare(scores[:2], baseline=0).rows[1], compare(scores, baseline=0).rows[1]
    assert few.ci == pytest.approx(all_rows.ci)
    assert few.p == all_rows.p
