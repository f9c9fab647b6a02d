"""Intervals of figures over all cells of a row rest on the cases of the class that counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy  # its parts are imported when they are used

from wtb.analysis.statistics import Design, compare, wilson
from wtb.analysis.statistics.class_intervals import counted, differences, row_intervals
from wtb.analysis.statistics.row_figures import FigureRows, RowCells, contributions
from wtb.core.scoring.measure import FIGURES, OF_CLASSES, OF_SCORES, Figure


def cells(figure: Figure, rare: int, cases: int = 200, seed: int = 1, repeats: int = 1) -> RowCells:
    """A row whose rarest class has the given number of cases."""
    rng = np.random.default_rng(seed)
    truth = np.repeat((np.arange(cases) < rare).astype(np.int64), repeats)
    column = np.repeat(np.arange(cases), repeats)
    right = np.repeat(rng.random(cases) < 0.8, repeats)
    answers = np.where(right, truth, 1 - truth).astype(float)
    if figure in OF_SCORES:
        answers = np.clip(0.2 + 0.4 * answers + np.repeat(rng.random(cases), repeats) * 0.3, 0, 1)
    return RowCells(truth, answers, column)


def rows_of(figure: Figure, *rows: RowCells, cases: int = 200) -> FigureRows:
    return FigureRows(figure, rows, cases)


@pytest.mark.parametrize("figure", FIGURES)
def test_below_15_cases_of_the_class_there_is_no_interval(figure: Figure) -> None:
    for rare in (14, 15):
        row = cells(figure, rare)
        if figure == "class_precision":
            row = row._replace(observed=row.truth.astype(float))
        if figure in ("class_precision", "class_recall", "class_f1"):
            assert counted(figure, row).units == rare
        (low, high), *_ = row_intervals(rows_of(figure, row)).tolist()
        assert math.isnan(low) == (rare < 15)
        estimate = contributions(figure, row.truth, row.observed, row.column).mean()
        assert rare < 15 or low <= estimate <= high
        (ends,) = differences(rows_of(figure, row, cells(figure, 40, seed=2)._replace(truth=row.truth)), 0, [1]).ends
        assert math.isnan(ends[0]) == (rare < 15) or figure == "class_precision"


def test_rates_of_a_class_have_wilsons_interval_over_its_cases() -> None:
    truth = np.repeat([1, 0], [20, 180])
    answers = np.where(np.arange(200) < 17, 1.0, 0.0)
    answers[20:25] = 1.0
    row = RowCells(truth, answers, np.arange(200))
    of = scipy.stats.binomtest
    for figure, hits, among in (("class_recall", 17, 20), ("class_precision", 17, 22)):
        expected = of(hits, among).proportion_ci(method="wilson")
        assert row_intervals(rows_of(figure, row))[0] == pytest.approx([expected.low, expected.high])
    shared = of(17, 25).proportion_ci(method="wilson")
    expected_f1 = [2 * end / (1 + end) for end in (shared.low, shared.high)]
    assert row_intervals(rows_of("class_f1", row))[0] == pytest.approx(expected_f1)
    perfect = row._replace(observed=truth.astype(float))
    assert row_intervals(rows_of("class_recall", perfect))[0] == pytest.approx(wilson(20, 20))


def test_a_difference_of_rates_is_that_of_newcombe_for_pairs() -> None:
    """Newcombe, "Improved confidence intervals for the difference between binomial proportions based on paired data",
    1998, method 8: Wilson's intervals, combined by the correlation of the pairs.
    """
    table = np.array([[20, 12], [2, 16]])  # both right, the first only, the second only, none
    first = np.repeat([1, 1, 0, 0], table.ravel())
    second = np.repeat([1, 0, 1, 0], table.ravel())
    truth, columns = np.ones(50, dtype=np.int64), np.arange(50)
    rows = [RowCells(truth, answers.astype(float), columns) for answers in (first, second)]
    (low, high), *_ = differences(FigureRows("class_recall", rows, 50), 0, [1]).ends.tolist()
    p, q = first.mean(), second.mean()
    r = np.corrcoef(first, second)[0, 1]
    (l1, u1), (l2, u2) = wilson(32, 50), wilson(22, 50)
    lower_gap = math.sqrt((p - l1) ** 2 - 2 * r * (p - l1) * (u2 - q) + (u2 - q) ** 2)
    upper_gap = math.sqrt((u1 - p) ** 2 - 2 * r * (u1 - p) * (q - l2) + (q - l2) ** 2)
    assert (low, high) == pytest.approx((p - q - lower_gap, p - q + upper_gap))


@pytest.mark.parametrize("figure", FIGURES)
def test_repeats_that_say_the_same_make_no_interval_narrower(figure: Figure) -> None:
    once, thrice = (row_intervals(rows_of(figure, cells(figure, 40, repeats=repeats)))[0] for repeats in (1, 3))
    if figure == "calibration_error":  # which leaves products of a case with itself out
        assert thrice[1] - thrice[0] > 0.8 * (once[1] - once[0])
    else:
        assert thrice == pytest.approx(once, rel=0.01)


@pytest.mark.parametrize("figure", FIGURES)
def test_clusters_count_as_one_each(figure: Figure) -> None:
    units = np.arange(200) // 10
    row = cells(figure, 40)
    if figure == "class_precision":
        row = row._replace(observed=row.truth.astype(float))
    assert counted(figure, row, units).units < 15
    assert math.isnan(row_intervals(rows_of(figure, row), units)[0, 0])


def test_kappa_rests_on_what_is_not_the_most_common_class_and_means_on_the_rarest() -> None:
    truth = np.repeat([0, 1, 2, 3], [150, 30, 15, 5])
    row = RowCells(truth, truth.astype(float), np.arange(200))
    assert counted("cohen_kappa", row)[::2] == (None, 50)
    for figure in OF_CLASSES - {"cohen_kappa"}:
        assert counted(figure, row) == (3, False, 5)


@pytest.mark.parametrize("figure", ["class_recall", "auc", "calibration_error"])
def test_a_comparison_shows_no_interval_and_still_tests(figure: Figure) -> None:
    rows = rows_of(figure, cells(figure, 10), cells(figure, 10, seed=3))
    scores = np.array([contributions(figure, *row) for row in rows.rows])
    comparison = compare(scores, Design(baseline=0, figure=rows))
    assert [row.ci for row in comparison.rows] == [None, None]
    assert (comparison.rows[1].delta_ci, comparison.lead.ci, comparison.skewed) == (None, None, None)
    assert comparison.rows[1].p is not None
