"""Agreement of raters, and means of labels with judgements, agree with published values and invariants."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wtb.analysis.judge_agreement import Scale, cohens_kappa, krippendorffs_alpha
from wtb.analysis.judge_rows import labelled_mean
from wtb.analysis.statistics import Floats

NAN = math.nan


def pairs(table: list[list[int]]) -> tuple[Floats, Floats]:
    """The ratings of two raters, from a table that counts each pair of levels."""
    drawn = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    first, second = np.array(drawn, float).T
    return first, second


def test_kappa_is_that_of_published_tables() -> None:
    assert cohens_kappa(*pairs([[20, 5], [10, 15]])).value == pytest.approx(0.4)
    # Cohen, "A coefficient of agreement for nominal scales", 1960, table 1: two clinicians, 200 patients.
    assert cohens_kappa(*pairs([[88, 14, 18], [10, 40, 10], [2, 6, 12]])).value == pytest.approx(0.492, abs=5e-4)


def test_the_interval_of_kappa_is_that_of_its_error_in_large_samples() -> None:
    table = [[88, 14, 18], [10, 40, 10], [2, 6, 12]]
    kappa = cohens_kappa(*pairs(table))
    half = (kappa.interval[1] - kappa.interval[0]) / 2
    assert half / 1.972 == pytest.approx(large_sample_error(np.array(table)), rel=0.02)


@pytest.mark.parametrize("scale", ["nominal", "ordinal", "interval"])
def test_intervals_of_agreement_stay_within_what_can_be(scale: Scale) -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        ratings = rng.integers(0, 4, (2, 4)).astype(float)
        for agreement in (cohens_kappa(*ratings, scale), krippendorffs_alpha(ratings, scale)):
            low, high = agreement.interval
            assert math.isnan(low) or -1 <= low < agreement.value < high <= 1


def large_sample_error(table: Floats) -> float:
    """The standard error of kappa by Fleiss, Cohen & Everitt, "Large sample standard errors of kappa", 1969."""
    p = table / table.sum()
    rows, columns = p.sum(axis=1), p.sum(axis=0)
    agreed, by_chance = p.trace(), rows @ columns
    on = (p.diagonal() * ((1 - by_chance) - (rows + columns) * (1 - agreed)) ** 2).sum()
    squares = (columns[:, None] + rows[None, :]) ** 2 * p
    off = (1 - agreed) ** 2 * (squares.sum() - squares.trace())
    rest = (agreed * by_chance - 2 * by_chance + agreed) ** 2
    return math.sqrt((on + off - rest) / (table.sum() * (1 - by_chance) ** 4))


@pytest.mark.parametrize(("scale", "expected_alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_is_that_of_the_example_by_krippendorff(scale: Scale, expected_alpha: float) -> None:
    ratings = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
            [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
        ]
    )
    alpha = krippendorffs_alpha(ratings, scale)
    assert alpha.value == pytest.approx(expected_alpha, abs=5e-4)
    assert alpha.units == 11, "one unit has a single rating"
    assert math.isnan(alpha.interval[0])
    assert alpha.because == "7 ratings of a rater are not the most common one: there is no interval below 15"


@pytest.mark.parametrize("rare", [14, 15])
def test_agreement_has_an_interval_from_15_ratings_on_that_are_not_the_most_common_one(rare: int) -> None:
    first = np.where(np.arange(300) < rare, 1.0, 0.0)
    second = np.where((np.arange(300) >= 3) & (np.arange(300) < rare + 3), 1.0, 0.0)
    for agreement in (cohens_kappa(first, second), krippendorffs_alpha(np.stack([first, second]))):
        assert agreement.rarer == rare
        assert math.isnan(agreement.interval[0]) == (rare < 15)
        assert (agreement.because is None) == (rare >= 15)


def test_weights_of_kappa_count_how_far_apart_two_levels_are() -> None:
    first, near, far = np.array([1.0, 2, 3, 3] * 5), np.array([1.0, 2, 3, 2] * 5), np.array([1.0, 2, 3, 1] * 5)
    scales: tuple[Scale, ...] = ("ordinal", "interval")
    for scale in scales:
        assert cohens_kappa(first, near, scale).value > cohens_kappa(first, far, scale).value
    two = pairs([[20, 5], [10, 15]])
    assert cohens_kappa(*two, "interval").value == pytest.approx(cohens_kappa(*two).value)


def test_what_nobody_can_know_is_no_number() -> None:
    same = np.array([1.0, 2, 1, 2])
    assert cohens_kappa(same, same).value == 1
    assert np.isnan(cohens_kappa(same, same).interval).all(), "without a disagreement nothing is known of its chance"
    assert math.isnan(cohens_kappa(np.ones(4), np.ones(4)).value)
    nothing = np.full(4, NAN)
    assert (math.isnan(cohens_kappa(same, nothing).value), cohens_kappa(same, nothing).units) == (True, 0)
    assert math.isnan(krippendorffs_alpha(np.stack([same, nothing])).value)


def test_units_of_one_cluster_are_left_out_together() -> None:
    first, second = pairs([[20, 5], [10, 15]])
    doubled = cohens_kappa(np.tile(first, 2), np.tile(second, 2), clusters=np.tile(np.arange(len(first)), 2))
    assert doubled.interval == pytest.approx(cohens_kappa(first, second).interval)
    ratings = np.tile(np.stack([first, second]), 2)
    both = krippendorffs_alpha(ratings, clusters=np.tile(np.arange(len(first)), 2))
    assert both.interval[0] < krippendorffs_alpha(ratings).interval[0]


def drawn(accuracy: float, cases: int = 2_000, labels: int = 200) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(4)
    truth = (rng.random(cases) < 0.4).astype(float)
    judge = np.where(rng.random(cases) < accuracy, truth, 1 - truth)
    ratings = np.where(np.arange(cases) < labels, truth, NAN)
    return ratings, judge


def width(interval: tuple[float, float]) -> float:
    return interval[1] - interval[0]


def test_a_good_judge_makes_intervals_shorter_and_a_bad_one_leaves_them_as_they_are() -> None:
    labels, judge = drawn(0.95)
    alone = labelled_mean(labels, np.full(len(labels), NAN))
    assert (alone.weight, alone.mean) == (0.0, np.nanmean(labels))
    assert width(labelled_mean(labels, judge).interval) < 0.6 * width(alone.interval)
    # If a judge guesses, half of its scores are true.
    labels, guess = drawn(0.5)
    assert width(labelled_mean(labels, guess).interval) == pytest.approx(width(alone.interval), rel=0.05)


def test_a_judge_that_is_wrong_everywhere_is_corrected_by_the_labels() -> None:
    labels, judge = drawn(0.95)
    lenient = labelled_mean(labels, judge + 0.3)
    assert lenient.mean == pytest.approx(labelled_mean(labels, judge).mean)
    assert np.nanmean(judge + 0.3) > lenient.interval[1], "which is what judgements alone would say"
    assert labelled_mean(labels, 1 - judge).weight == 0, "who says the opposite is not believed"


def test_labels_of_all_cases_need_no_judge() -> None:
    truth = drawn(0.9)[0][:200]
    estimate = labelled_mean(truth, 1 - truth)
    assert (estimate.weight, estimate.judged, estimate.mean) == (0.0, 0, truth.mean())


def test_without_labels_or_variation_nothing_is_claimed() -> None:
    nothing = np.full(50, NAN)
    assert math.isnan(labelled_mean(nothing, np.ones(50)).mean)
    few = np.where(np.arange(50) < 10, 1.0, NAN)
    assert labelled_mean(few, nothing).mean == 1
    assert np.isnan(labelled_mean(few, np.arange(50.0)).interval).all()
    assert labelled_mean(few, nothing).has_few_labels
