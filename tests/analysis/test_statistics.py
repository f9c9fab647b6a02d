"""The statistics agree with scipy, and are correct in cases that scipy does not cover."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.support.amounts import examples
from tests.support.prose import sentence
from wtb.analysis.statistics import RESAMPLES, Comparison, Design, Estimate, Floats, Lead, compare, holm, paired, wilson
from wtb.analysis.statistics.comparing import passes
from wtb.analysis.statistics.intervals import rate_difference, t_quantile
from wtb.analysis.statistics.paired import mcnemar, mean_test, paired_tests, sign_flip
from wtb.analysis.statistics.power import detectable, pairs_needed

# Quarters, so that sums, shifts and sign changes are exact in floating point.
QUARTERS = st.integers(-400, 400).map(lambda k: k / 4)
SCORES = arrays.arrays(
    np.float64,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=40),
    elements=st.one_of(QUARTERS, st.just(math.nan)),
    fill=QUARTERS,
)


def numbers(comparison: Comparison) -> list[float]:
    """Every number of a comparison."""
    figures: list[Any] = [*dataclasses.astuple(comparison)]
    while any(isinstance(figure, tuple) for figure in figures):
        figures = [part for figure in figures for part in (figure if isinstance(figure, tuple) else [figure])]
    return [figure for figure in figures if isinstance(figure, int | float)]


def paired_scores(n: int, seed: int = 0, lead: float = 0.3) -> Floats:
    rng = np.random.default_rng(seed)
    easy = rng.normal(size=n)
    return np.stack([easy + rng.normal(size=n), easy + rng.normal(size=n) + lead])


# Intervals


def hall(scores: Floats) -> tuple[float, float]:
    """Hall's (1992) interval, by solving his cubic for the quantiles of t rather than by its inverse."""
    n, skew = scores.size, float(scipy.stats.skew(scores))
    t = scipy.stats.t.ppf(0.975, n - 1) / math.sqrt(n)

    def transformed(x: float) -> float:
        return x + skew * x**2 / 3 + skew**2 * x**3 / 27 + skew / (6 * n)

    ends = [scipy.optimize.brentq(lambda x, at=at: transformed(x) - at, -100, 100) for at in (t, -t)]
    return tuple(float(scores.mean() - end * scores.std(ddof=1)) for end in ends)  # type: ignore[return-value]


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("n", [5, 20, 37, 200, 500])
def test_the_interval_is_the_hull_of_students_t_and_of_halls(n: int, skewed: bool) -> None:
    scores = np.exp(paired_scores(n)) if skewed else paired_scores(n)
    rows = compare(scores, Design(baseline=0)).rows
    for sample, ours in ((scores[1], rows[1].ci), (scores[1] - scores[0], rows[1].delta_ci)):
        student = scipy.stats.ttest_1samp(sample, 0.0).confidence_interval(0.95)
        lows, highs = zip(hall(sample), tuple(student), strict=True)
        assert ours == pytest.approx((min(lows), max(highs)), rel=1e-5)


def test_a_row_that_misses_cases_gets_the_interval_of_the_cases_it_has() -> None:
    scores = np.exp(paired_scores(200))
    gaps = scores.copy()
    gaps[1, ::4] = np.nan
    row = compare(gaps, Design(baseline=0)).rows[1]
    shared = ~np.isnan(gaps[1])
    alone = compare(scores[:, shared], Design(baseline=0)).rows[1]
    assert (row.n, row.n_pairs, row.mean, row.delta) == (150, 150, alone.mean, alone.delta)
    assert row.ci == alone.ci


def test_beyond_500_cases_p_needs_no_resampling_and_agrees_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.exp(paired_scores(2_000, lead=0.0))
    quick = compare(scores, Design(baseline=0)).rows[1]
    monkeypatch.setattr(paired, "LIMIT_FROM", 2_000)
    assert quick.p == pytest.approx(compare(scores, Design(baseline=0)).rows[1].p, abs=0.02)


@pytest.mark.parametrize("freedom", [1, 2, 5, 18, 19, 40, 1_000])
def test_quantiles_of_t_are_those_of_scipy(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(scipy.stats.t.ppf(0.975, freedom), rel=1e-6)


@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 2), (7, 10), (10, 10), (90, 100), (1, 3000)])
def test_scores_of_0_and_1_get_the_wilson_interval(successes: int, n: int) -> None:
    expected = scipy.stats.binomtest(successes, n).proportion_ci(method="wilson")
    row = np.zeros((1, n))
    row[0, :successes] = 1.0
    assert compare(row).rows[0].ci == pytest.approx(tuple(expected), abs=1e-12)
    assert wilson(successes, n) == pytest.approx(tuple(expected), abs=1e-12)


def test_a_cost_of_nothing_in_every_case_is_a_constant_and_not_a_rate() -> None:
    assert compare(np.zeros((2, 20)), Design(better="lower")).rows[0].ci is None
    assert compare(np.zeros((2, 20)), Design(better="higher")).rows[0].ci is not None
    assert compare(np.eye(2, 20), Design(better="lower")).rows[0].ci == wilson(1, 20)


def test_the_difference_of_two_paired_rates_has_the_interval_of_bonett_and_price() -> None:
    # Approval of 1,600 Britons in two surveys, of whom 150 turned away and 86 came round (Agresti 2002, table 10.1).
    # The intervals there and here shrink towards no difference, by 4 of 1,600.
    changes = np.r_[np.full(150, -1.0), np.full(86, 1.0), np.zeros(1_364)]
    (low, high), *_ = rate_difference(changes[None, :]).tolist()
    up, down = 87 / 1602, 151 / 1602
    half = 1.959964 * math.sqrt((up + down - (up - down) ** 2) / 1602)
    assert (low, high) == pytest.approx((up - down - half, up - down + half), abs=1e-6)
    assert (low, high) == pytest.approx((-0.059, -0.021), abs=1e-3)


def test_rates_that_never_differ_are_equal_within_an_interval() -> None:
    row = compare(np.ones((2, 20)), Design(baseline=0)).rows[1]
    assert (row.delta, row.p, row.detectable) == (0.0, 1.0, None)
    assert row.delta_ci == pytest.approx((-0.126, 0.126), abs=1e-3)


def test_a_perfect_row_is_a_pass_rate_also_where_another_row_has_repeats() -> None:
    scores = np.stack([np.ones(20), np.r_[np.full(10, 2 / 3), np.ones(10)]])
    assert compare(scores).rows[0].ci == wilson(20, 20)
    assert compare(scores).rows[1].ci != wilson(20, 20)


def test_uneven_scores_of_few_cases_are_said_to_be_so() -> None:
    rng = np.random.default_rng(0)
    assert compare(np.exp(2 * rng.normal(size=(4, 25)))).skewed == 25
    assert compare(rng.normal(size=(4, 25))).skewed is None
    assert compare((rng.random((4, 25)) < 0.9) * 1.0).skewed is None


# Tests against the baseline


@pytest.mark.parametrize("n", [2, 5, 13])
def test_few_pairs_are_tested_over_every_flip(n: int) -> None:
    scores = paired_scores(n)
    assert compare(scores, Design(baseline=0)).rows[1].p == pytest.approx(scipy_p(scores), abs=1e-12)


@pytest.mark.parametrize(("n", "lead"), [(14, 0.5), (37, 0.3), (200, 0.1)])
def test_many_pairs_are_tested_over_random_flips(n: int, lead: float) -> None:
    scores = paired_scores(n, lead=lead)
    expected = scipy_p(scores)
    error = math.sqrt(expected * (1 - expected) / RESAMPLES)
    (p,) = sign_flip(scores[[1]] - scores[[0]], 0)
    assert p == pytest.approx(expected, abs=6 * error + 1e-4)
    assert (compare(scores, Design(baseline=0)).rows[1].p or 0) >= p


def scipy_p(scores: Floats) -> float:
    test = scipy.stats.permutation_test(
        (scores[1] - scores[0],), np.mean, permutation_type="samples", n_resamples=RESAMPLES, rng=5
    )
    return float(test.pvalue)


def test_darwins_plants() -> None:
    # Heights of 15 pairs of Zea mays, crossed less self-fertilised, in eighths of an inch (Darwin 1876), and the
    # two-sided p of Fisher's test of all 2**15 flips (The Design of Experiments, 1935, section 21: 1726 of 32768).
    darwin = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48], dtype=float)
    everything = 1.0 - 2.0 * (np.arange(2**15)[:, None] >> np.arange(15) & 1)
    assert (np.abs(everything @ darwin) >= darwin.sum()).sum() == 1_726
    (flipped,) = sign_flip(darwin[None, :], 0)
    assert flipped == pytest.approx(1_726 / 32_768, abs=6 * math.sqrt(0.0527 * 0.9473 / RESAMPLES))
    (tested,) = paired_tests(darwin[None, :])
    assert tested.delta == pytest.approx(2.6167 * 8, abs=1e-2)
    # Two plants that fell far behind make the differences skewed, and the test of their mean the more careful.
    assert (tested.p or 0) > flipped
    # The interval of Fisher's t test there: 0.004 to 5.230 inches; with the skewness it begins lower.
    assert tested.ci[0] < 0.03
    assert tested.ci[1] == pytest.approx(41.84, abs=0.01)


@pytest.mark.parametrize(
    ("better", "worse"),
    [(0, 0), (1, 0), (5, 5), (86, 150), (900, 1_000), pytest.param(40_000, 40_100, marks=pytest.mark.slow)],
)
def test_pass_and_fail_are_tested_by_mcnemars_exact_test(better: int, worse: int) -> None:
    expected = scipy.stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
    assert mcnemar(better, worse) == pytest.approx(expected, rel=1e-8)
    scores = np.zeros((2, better + worse + 10))
    scores[1, :better], scores[0, better : better + worse] = 1.0, 1.0
    assert compare(scores, Design(baseline=0)).rows[1].p == pytest.approx(expected, rel=1e-8)


def test_a_p_too_small_to_be_a_number_is_not_zero() -> None:
    assert mcnemar(0, 100_000) == 1e-300


def test_pairs_that_agree_do_not_change_the_exact_p() -> None:
    scores = np.zeros((2, 1000))
    scores[1, :10] = 1.0
    row = compare(scores, Design(baseline=0)).rows[1]
    assert row.p == 2 / 2**10
    assert row.n_pairs == 1000


@pytest.mark.parametrize("cases", [50, 5000])
def test_p_where_no_flip_is_as_extreme_is_small_and_never_zero(cases: int) -> None:
    rows = compare(np.stack([np.zeros(cases), np.linspace(1, 2, cases)]), Design(baseline=0)).rows
    assert 0 < (rows[1].p or 0) < 1 / (RESAMPLES + 1)


def test_differences_that_are_rounding_errors_are_no_differences() -> None:
    scores = np.stack([np.full(40, 0.3), np.full(40, 0.1 + 0.2)])
    row = compare(scores, Design(baseline=0)).rows[1]
    assert (row.delta, row.delta_ci, row.p) == (0.0, None, 1.0)


def test_under_the_null_p_is_below_5_percent_in_5_percent() -> None:
    rng = np.random.default_rng(11)
    rows = examples(1_000)
    scores = np.vstack([np.zeros(37), rng.normal(size=(rows, 37))])
    rejected = sum(row.p is not None and row.p < 0.05 for row in compare(scores, Design(baseline=0)).rows)
    assert rejected / rows == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / rows))


def test_differences_with_equal_means_and_a_long_tail_are_rarely_seen() -> None:
    rng = np.random.default_rng(5)
    differences = np.exp(rng.normal(size=(1_000, 50))) - math.exp(0.5)
    flipped, tested = ((p < 0.05).mean() for p in (sign_flip(differences, 0), mean_test(differences, 0)))
    assert flipped > 0.07
    assert tested < 0.07


def test_the_p_of_a_transformed_t_is_that_of_scipy() -> None:
    for t, freedom in ((2.0, 9), (3.5, 19), (5.0, 40), (1.0, 200)):
        assert paired._p_of_t(t, freedom) == pytest.approx(2 * scipy.stats.t.sf(t, freedom), rel=0.02)


def test_holm_on_a_known_example() -> None:
    # The p-values of the worked example on Wikipedia, "Holm-Bonferroni method", adjusted by hand.
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]
    with_gap = holm(np.array([0.01, math.nan, 0.03]))
    assert with_gap[[0, 2]].tolist() == [0.02, 0.03]
    assert math.isnan(with_gap[1])


def test_p_is_adjusted_over_the_combinations_of_the_metric() -> None:
    scores = np.vstack([paired_scores(40), paired_scores(40, seed=1)[1:], np.full((1, 40), np.nan)])
    rows = compare(scores, Design(baseline=0)).rows
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
    assert (best(scores), best(scores, better="lower")) == ((1, True), (0, True))


def test_of_equals_the_first_is_best_and_rows_without_common_cases_are_no_rivals() -> None:
    assert best(np.array([[0.1, 0.2, 0.7], [0.7, 0.1, 0.2], [0.0, 0.0, 0.0]])) == (0, False)
    assert best(np.vstack([np.full((1, 20), np.nan), np.linspace(0, 1, 20), np.linspace(1, 2, 20)])) == (2, True)
    scores = np.full((2, 40), np.nan)
    scores[0, :20], scores[1, 20:] = 0.0, 1.0
    assert (best(scores), compare(scores).unranked) == ((None, False), (0, 1))


def best(scores: Floats, **design: Any) -> tuple[int | None, bool]:
    comparison = compare(scores, Design(**design))
    return comparison.best, comparison.clear


@pytest.mark.parametrize("lead", [0.0, 0.1, 0.6])
def test_the_lead_over_the_closest_rival_is_told(lead: float) -> None:
    rng = np.random.default_rng(4)
    scores = rng.normal(size=60) + 0.5 * rng.normal(size=(3, 60))
    scores[1] += lead
    scores[2] -= 2
    comparison = compare(scores)
    best, second = np.argsort(-scores.mean(axis=1))[:2].tolist()
    differences = scores[best] - scores[second]
    assert (comparison.best, comparison.lead.rival, comparison.lead.n_pairs) == (best, second, 60)
    assert comparison.lead.lead == pytest.approx(differences.mean())
    assert comparison.lead.p == mean_test(differences[None, :], 0)[0]
    if comparison.clear:
        assert (comparison.candidates, comparison.lead.next_step, comparison.lead.because) == ((best,), None, None)
    else:
        assert comparison.candidates == (0, 1)
        assert comparison.lead.because == sentence("that could be chance")
        assert comparison.lead.ci is not None
        step, spread = comparison.lead.next_step, differences.std(ddof=1)
        needed = ((1.96 + 0.8416) * spread / differences.mean()) ** 2 + 1.96**2 / 2
        assert step.cases == (pytest.approx(needed, abs=2) if needed < 50 * 60 else None)
        assert step.cases_if_half == (pytest.approx(4 * needed, rel=0.02) if 4 * needed < 50 * 60 else None)
        assert step.differ_at_most == pytest.approx(max(map(abs, comparison.lead.ci)))
    turned = compare(-scores, Design(better="lower"))
    assert (turned.lead, turned.candidates) == (comparison.lead, comparison.candidates)


def test_a_best_that_beats_the_runner_up_and_not_another_rival_is_not_clear() -> None:
    rng = np.random.default_rng(8)
    prefix = rng.normal(size=(2, 50))
    prefix -= prefix.mean(axis=1, keepdims=True)
    leaves = 0.01 * rng.normal(size=(2, 50))
    # The second row is behind the first by 0.1 in every case, the third as good but for chance.
    scores = np.stack([prefix[0] + 0.15, prefix[0] + 0.05 + leaves[0], prefix[1] + leaves[1]])
    comparison = compare(scores)
    assert (comparison.best, comparison.clear, comparison.lead.rival) == (0, False, 2)
    assert comparison.candidates == (0, 2)
    assert comparison.rows[0].ranks == (1, 2)


def test_a_row_that_failed_nearly_everywhere_is_not_ranked() -> None:
    rng = np.random.default_rng(2)
    scores = rng.normal(size=(3, 40))
    scores[0, 1:], scores[0, 0] = np.nan, 9.0
    comparison = compare(scores)
    assert comparison.best in (1, 2)
    assert (comparison.unranked, comparison.cases, comparison.rows[0].ranks) == ((0,), 40, None)


def test_rows_are_ranked_over_the_cases_that_all_of_them_have() -> None:
    easy = np.r_[np.full(2, -10.0), np.random.default_rng(3).normal(size=58)]
    scores = np.stack([easy, easy + 0.1])
    scores[0, :2] = np.nan  # it failed where it is hard, and so has the better mean
    comparison = compare(scores)
    assert (comparison.rows[0].mean or 0) > (comparison.rows[1].mean or 0)
    assert (comparison.best, comparison.clear, comparison.cases) == (1, True, 58)


def test_the_figures_of_the_best_allow_for_its_having_been_chosen() -> None:
    scores = np.random.default_rng(6).normal(size=(24, 60))
    comparison = compare(scores)
    assert comparison.best is not None
    plain = comparison.rows[comparison.best]
    assert comparison.winner.ci[0] < plain.ci[0]
    assert comparison.winner.ci[1] == plain.ci[1]
    assert abs(comparison.winner.shrunken or 9) < abs(plain.mean or 0) / 2
    low = compare(-scores, Design(better="lower")).winner
    assert low.ci == pytest.approx((-comparison.winner.ci[1], -comparison.winner.ci[0]))
    alone = compare(scores[:1]).winner
    assert alone.ci == compare(scores[:1]).rows[0].ci


def test_a_lead_of_which_nothing_can_be_told_says_why() -> None:
    assert compare(np.full((2, 3), np.nan)).lead == Lead(because="nothing is scored")
    assert compare(np.ones((1, 3))).lead == Lead(because="only one combination is ranked")
    assert compare(np.array([[0.3], [0.4]])).lead.because == sentence("they have only one case in common")
    scores = np.ones((40, 40))
    np.fill_diagonal(scores, np.nan)
    assert compare(scores).lead.because == sentence("no case has a score of all of them")


def test_cases_in_which_no_row_has_a_score_count_against_all_of_them() -> None:
    scores = np.full((2, 20), np.nan)
    scores[:, :18] = np.arange(18) % 2
    comparison = compare(scores)
    assert (comparison.best, comparison.unranked) == (None, (0, 1))
    assert comparison.lead == Lead(because="none has a score in 95% of the cases")
    assert compare(scores[:, :18]).best == 0
    scores = np.zeros((2, 40))
    scores[1, :5] = 1.0
    lead = compare(scores).lead
    assert lead.because == sentence("only {} between them, too few for a test", "5 cases differ")
    assert lead.next_step is not None
    assert lead.next_step.cases is not None
    assert compare(np.ones((2, 9))).lead.because == sentence("they score the same in all {} cases that both have", 9)


def test_effect_and_detectable_difference_are_those_of_the_paired_t_test() -> None:
    scores = paired_scores(30)
    differences = scores[1] - scores[0]
    row = compare(scores, Design(baseline=0)).rows[1]
    assert row.effect == pytest.approx(differences.mean() / differences.std(ddof=1))
    # The power of the t test at that difference, by the noncentral distribution.
    shift = row.detectable / differences.std(ddof=1) * math.sqrt(30)
    assert scipy.stats.nct.sf(scipy.stats.t.ppf(0.975, 29), 29, shift) == pytest.approx(0.8, abs=0.01)
    assert compare(scores[:, :5], Design(baseline=0)).rows[1].detectable is None
    # Of 24 rows one that differs has to pass Holm's first step.
    family = compare(np.vstack([scores, np.random.default_rng(1).normal(size=(23, 30))]), Design(baseline=0)).rows[1]
    shift = family.detectable / differences.std(ddof=1) * math.sqrt(30)
    critical = scipy.stats.t.ppf(1 - 0.025 / 24, 29)
    assert scipy.stats.nct.sf(critical, 29, shift) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize(("rate", "pairs"), [(0.5, 30), (0.9, 100), (0.97, 200)])
def test_the_detectable_fall_of_a_rate_is_that_of_mcnemars_exact_test(rate: float, pairs: int) -> None:
    differing = rate * (1 - rate)
    fall, rise = detectable(math.sqrt(differing), pairs, 3, rate)
    share = differing + fall * (1 - differing / rate)
    passing = [
        scipy.stats.binom.sf(next(k for k in range(m + 2) if 2 * scipy.stats.binom.sf(k - 1, m, 0.5) < 0.05 / 3) - 1, m,
                             (share + fall) / 2 / share)
        for m in range(pairs + 1)
    ]  # fmt: skip
    power = (scipy.stats.binom.pmf(range(pairs + 1), pairs, share) * passing).sum()
    assert power == pytest.approx(0.8, abs=0.02)
    if rate == 0.5:
        assert rise == fall
    else:
        assert rise is None or rise < 1 - rate, "there is less room above"


def test_a_fall_near_the_ceiling_has_to_be_larger_than_the_spread_of_equal_rows_suggests() -> None:
    scores = np.ones((2, 100))
    scores[0, :10], scores[1, 5:15] = 0.0, 0.0
    row = compare(scores, Design(baseline=0)).rows[1]
    assert row.detectable == row.detectable_fall
    assert row.detectable_fall > 2.8 * math.sqrt(0.1 / 100)
    assert row.detectable_rise < 0.1 < row.detectable_fall, "of 100 cases only 10 could pass that do not"


def test_several_effects_that_have_to_show_together_take_more_pairs() -> None:
    single, spread = pairs_needed(np.array([0.5]), np.ones(1), 1.96), np.ones(6)
    together = pairs_needed(np.full(6, 0.5), spread, 1.96)
    alike = pairs_needed(np.full(6, 0.5), spread, 1.96, np.ones((6, 6)))
    assert single == pytest.approx(((1.96 + 0.8416) / 0.5) ** 2 + 1.96**2 / 2, abs=1)
    assert together == pytest.approx(((1.96 + scipy.stats.norm.ppf(0.8 ** (1 / 6))) / 0.5) ** 2 + 1.96**2 / 2, abs=3)
    assert alike == pytest.approx(single, abs=1)


# Honest None


def test_one_case_has_a_mean_and_nothing_else() -> None:
    comparison = compare(np.array([[0.2], [0.9]]), Design(baseline=0))
    assert comparison.rows[0] == Estimate(1, 0, 0.2, None, None, None, None, None, common_mean=0.2)
    assert comparison.rows[1] == Estimate(1, 1, 0.9, None, 0.9 - 0.2, None, None, None, common_mean=0.9)
    assert (comparison.best, comparison.clear) == (1, False)


def test_one_combination_has_no_rival() -> None:
    comparison = compare(np.array([[0.2, 0.4, 0.9]]), Design(baseline=0))
    assert (comparison.rows[0].ci is None, comparison.rows[0].delta) == (False, None)
    assert (comparison.best, comparison.clear) == (0, False)


def test_scores_that_do_not_vary_have_no_interval() -> None:
    scores = np.array([[0.5] * 40, [0.7] * 40])
    row = compare(scores, Design(baseline=0)).rows[1]
    assert (row.ci, row.delta_ci, row.delta) == (None, None, pytest.approx(0.2))
    assert best(scores) == (1, True)


def test_rows_without_scores_are_empty() -> None:
    comparison = compare(np.full((2, 5), np.nan), Design(baseline=1))
    assert comparison.rows[0] == Estimate(0, 0, None, None, None, None, None, None)
    assert (comparison.best, comparison.clear) == (None, False)
    assert compare(np.empty((0, 5))).rows == ()
    assert compare(np.empty((3, 0)), Design(baseline=0)).rows[2].n == 0


def test_without_a_baseline_nothing_is_compared_with_it() -> None:
    row = compare(paired_scores(40)).rows[0]
    assert (row.n_pairs, row.delta, row.delta_ci, row.p, row.p_adjusted) == (0, None, None, None, None)
    assert row.ci is not None


def test_scores_that_are_not_finite_are_missing() -> None:
    row = compare(np.array([[1.0, math.inf, 3.0, -math.inf, 1e300]])).rows[0]
    assert (row.n, row.mean) == (2, 2.0)


@pytest.mark.parametrize("scale", [1e-90, 1e-50, 1e50, 1e99])
@pytest.mark.parametrize("n", [20, 40])
def test_the_scale_of_the_scores_does_not_matter(scale: float, n: int) -> None:
    scores = paired_scores(n)
    plain, scaled = compare(scores, Design(baseline=0)).rows[1], compare(scores * scale, Design(baseline=0)).rows[1]
    assert plain.delta_ci is not None
    assert scaled.delta_ci == pytest.approx(tuple(end * scale for end in plain.delta_ci))
    assert scaled.p == plain.p


@settings(max_examples=examples(60), deadline=None)
@given(SCORES, st.data())
def test_no_number_is_ever_nan(scores: Floats, data: st.DataObject) -> None:
    baseline = data.draw(st.one_of(st.none(), st.integers(0, len(scores) - 1)))
    comparison = compare(scores, Design(baseline=baseline))
    assert all(math.isfinite(number) for number in numbers(comparison))
    for row in comparison.rows:
        assert row.p is None or 0 < row.p <= (row.p_adjusted or 0) <= 1
        assert row.ci is None or row.ci[0] < row.ci[1]


@settings(max_examples=examples(40), deadline=None)
@given(SCORES, QUARTERS)
def test_a_shift_moves_the_means_and_leaves_the_differences(scores: Floats, shift: float) -> None:
    assume(not passes(scores, "higher").any() and not passes(scores + shift, "higher").any())
    plain, moved = compare(scores, Design(baseline=0)), compare(scores + shift, Design(baseline=0))
    assert moved.best == plain.best
    for before, after in zip(plain.rows, moved.rows, strict=True):
        assert after.mean == (None if before.mean is None else pytest.approx(before.mean + shift))
        assert (after.delta, after.delta_ci, after.p) == (before.delta, before.delta_ci, before.p)


@settings(max_examples=examples(40), deadline=None)
@given(SCORES)
def test_the_test_does_not_care_about_the_sign(scores: Floats) -> None:
    plain, turned = compare(scores, Design(baseline=0)), compare(-scores, Design(baseline=0, better="lower"))
    assert (turned.best, turned.clear) == (plain.best, plain.clear)
    for before, after in zip(plain.rows, turned.rows, strict=True):
        assert (after.p, after.p_adjusted) == (before.p, before.p_adjusted)
        assert after.delta == (None if before.delta is None else -before.delta)


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again, other = (compare(paired_scores(60), Design(baseline=0, seed=seed)) for seed in (4, 4, 5))
    assert first == again != other


def test_a_row_does_not_depend_on_the_others() -> None:
    scores = np.vstack([paired_scores(60), paired_scores(60, seed=1)])
    few, all_rows = compare(scores[:2], Design(baseline=0)).rows[1], compare(scores, Design(baseline=0)).rows[1]
    assert few.ci == pytest.approx(all_rows.ci)
    assert few.p == all_rows.p


def test_a_difference_beyond_doubt_stays_so_in_a_large_family() -> None:
    differences = np.random.default_rng(3).normal(1.0, 0.2, size=(1, 60))
    p = sign_flip(differences, 0)[0]
    assert 0 < p * 5_000 < 0.05
    z = differences.sum() / math.sqrt((differences**2).sum())
    assert p >= scipy.stats.norm.sf(z) * 2  # a bound, and not the limit itself


@pytest.mark.parametrize("power", [-1000, -560, -340, -210])
def test_tiny_scores_are_compared_as_others_are(power: int) -> None:
    """Squares of values below 1e-154 are 0, for example of probabilities of long texts."""
    scores, unit = paired_scores(20), 2.0**power
    usual, tiny = (compare(table, Design(baseline=0)) for table in (scores, scores * unit))
    assert (tiny.best, tiny.clear, tiny.candidates) == (usual.best, usual.clear, usual.candidates)
    for before, after in zip(usual.rows, tiny.rows, strict=True):
        assert (after.p, after.effect, after.ranks) == (before.p, before.effect, before.ranks)
        for name in ("mean", "delta", "detectable", "detectable_fall", "common_mean"):
            figure = getattr(before, name)
            assert getattr(after, name) == (None if figure is None else figure * unit)
        assert after.ci == (None if before.ci is None else (before.ci[0] * unit, before.ci[1] * unit))
    assert tiny.winner.mean == usual.winner.mean * unit
    if (step := usual.lead.next_step) is not None:
        assert tiny.lead.next_step == dataclasses.replace(step, differ_at_most=(step.differ_at_most or 0) * unit)
    (tested,) = paired_tests((scores[1] - scores[0])[None] * unit)
    assert tested.p == usual.rows[1].p


def test_no_interval_leaves_the_possible_scores() -> None:
    seconds = np.array([[0.1, 0.1, 9.0, 0.2], [0.1, 0.3, 8.0, 0.1]])
    free, bound = (compare(seconds, Design(better="lower", ends=ends)) for ends in (None, (0.0, math.inf)))
    for before, after in zip(free.rows, bound.rows, strict=True):
        assert before.ci[0] < 0
        assert after.ci == (0.0, before.ci[1])
    assert bound.winner.ci[0] == 0
    shares = np.array([[1.0, 1.0, 0.2, 0.9], [0.1, 0.0, 0.9, 0.05]])
    for row in compare(shares, Design(baseline=0, ends=(0.0, 1.0))).rows:
        assert 0 <= row.ci[0] <= row.ci[1] <= 1
        assert row.delta_ci is None or (row.delta_ci[0] >= -1 and row.delta_ci[1] <= 1)


def test_a_tiny_p_that_missing_cases_forbid_to_claim_has_an_interval_with_zero() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(0, 1, 200)
    scores = np.array([base, base + rng.normal(3, 0.5, 200)])
    scores[1, :120] = math.nan
    row = compare(scores, Design(baseline=0, ends=(-100.0, 100.0))).rows[1]
    assert 0 < row.p < 1e-16
    assert row.p_adjusted >= 0.05
    assert row.delta_ci[0] <= 0
    assert row.delta_ci[1] > 3
