"""Rows within a margin of the best: when they are shown, when not, and on which evidence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.bench import in_memory, make_bench
from tests.support.prose import sentence
from wtb import evaluator
from wtb.analysis.statistics import Design, Floats, compare, good_enough, paired_tests
from wtb.analysis.statistics.claims import MissingCells
from wtb.analysis.statistics.good_enough import Standing, standings, upper_bounds
from wtb.analysis.statistics.running import look
from wtb.authoring.workflow import Workflow

SCALE = (0.0, 1.0)


def standing(
    scores: Floats, margin: float = 0.05, allowed: list[int] | None = None, **design: object
) -> list[Standing]:
    settings = Design(ends=SCALE, **design)  # type: ignore[arg-type]
    comparison = compare(scores, settings)
    rows = list(range(len(scores))) if allowed is None else allowed
    return standings(scores, settings, margin, could_be_best=comparison.candidates, compared_rows=rows)


def passing(cases: int, *failed: int) -> Floats:
    """Rows that pass all cases except a given number, which differ from row to row."""
    scores = np.ones((len(failed), cases))
    for row in range(len(failed)):
        scores[row, sum(failed[:row]) : sum(failed[: row + 1])] = 0
    return scores


@pytest.mark.parametrize(("successes", "cases", "end"), [(0, 60, 0.0487), (1, 100, 0.0466), (5, 200, 0.0519)])
def test_a_bound_of_a_rate_is_that_of_clopper_and_pearson(successes: int, cases: int, end: float) -> None:
    values = np.zeros((1, cases))
    values[0, :successes] = 1
    assert upper_bounds(values, np.ones(1), np.array([1.6449]))[0] == pytest.approx(end, abs=4e-4)


def test_a_bound_of_many_values_is_that_of_students_t() -> None:
    values = np.random.default_rng(0).random((1, 5_000))
    half = 1.96 * values.std() / math.sqrt(5_000)
    assert upper_bounds(values, np.ones(1), np.array([1.96]))[0] == pytest.approx(values.mean() + half, abs=3e-4)


def test_a_bound_ignores_missing_values_and_needs_any() -> None:
    values = np.array([[0.0, math.nan] * 50, [math.nan] * 100])
    bounds = upper_bounds(values, np.ones(2), np.full(2, 1.6449))
    assert bounds[0] == pytest.approx(1 - 0.05 ** (1 / 50), abs=5e-4)
    assert math.isnan(bounds[1])


def test_rows_that_always_agree_are_within_the_margin_only_if_cases_are_enough() -> None:
    """A loss in 1 of 20 cases does not show in 30 of them."""
    assert [row.within for row in standing(np.ones((2, 30)))] == [None, None]
    assert [row.within for row in standing(np.ones((2, 80)))] == [True, True]


def test_a_row_far_behind_is_not_good_enough_and_the_best_is() -> None:
    best, near, far = standing(passing(400, 20, 36, 160))
    assert (best.within, far.within) == (True, False)
    assert near.within is None, "it may be behind by more than 0.05"
    assert 0.05 < far.behind[0] < 0.35 < far.behind[1]
    assert best.behind[0] == 0


def test_the_best_of_few_cases_is_not_shown_to_be_good_enough() -> None:
    """It may not be the best, because another row may be better by more than the margin."""
    assert [row.within for row in standing(passing(20, 2, 3))] == [None, None]


def test_where_lower_is_better_gaps_are_the_other_way_around() -> None:
    cheap, dear = standing(1 - passing(400, 0, 200), better="lower")
    assert (cheap.within, dear.within) == (True, False)


def test_the_best_is_one_of_the_rows_that_are_allowed() -> None:
    scores = passing(400, 0, 200, 200)
    assert [row.within for row in standing(scores)] == [True, False, False]
    assert [row.within for row in standing(scores[[0, 1, 1]], allowed=[1, 2])] == [None, True, True]


def test_a_row_that_lacks_many_cases_is_not_shown_to_be_anything() -> None:
    scores = passing(400, 0, 0)
    scores[1, :40] = np.nan
    assert standing(scores, missing=MissingCells.of(scores))[1] == Standing()


def test_what_missing_cells_could_change_is_not_shown() -> None:
    scores = passing(400, 0, 0)
    scores[1, :18] = np.nan
    first, second = standing(scores, missing=MissingCells.of(scores))
    assert first.within is True
    assert (second.within, second.hangs_on) == (None, 18)
    assert standing(scores)[1].within is True


def test_what_missing_cells_of_the_best_could_change_is_not_shown_to_be_too_far_behind() -> None:
    """The best lacks cells in which it may be wrong, and with them it leads by less than the margin."""
    scores = passing(1_000, 0, 100)
    scores[0, 150:190] = np.nan
    first, second = standing(scores, missing=MissingCells.of(scores))
    assert standing(scores)[1].within is False
    assert (second.within, second.hangs_on) == (None, 40)
    assert second.behind[0] <= 0.05
    assert first.within is not False


def pair(differences: Floats, spread: float = 1.0) -> Floats:
    """Two rows with the given differences, over cases that differ much more."""
    cases = spread * np.random.default_rng(9).normal(size=differences.size)
    return np.stack([cases + differences, cases])


def unscaled(scores: Floats, margin: float = 0.05, **design: Any) -> list[Standing]:
    return standings(scores, Design(**design), margin, could_be_best=[0, 1], compared_rows=range(len(scores)))


def test_without_a_scale_few_cases_show_no_row_to_be_good_enough() -> None:
    """In 5% of sweeps, a loss in one case of ten does not show in 28 cases, and its size is unknown."""
    differences = 0.02 * np.random.default_rng(0).normal(size=100)
    assert unscaled(pair(differences[:28])) == [Standing(), Standing()]
    for cases in (29, 100):
        assert [row.within for row in unscaled(pair(differences[:cases]))] == [True, True]
    assert unscaled(np.ones((2, 100))) == [Standing(), Standing()], "nothing says how much rows can differ"


def test_without_a_scale_how_much_cases_differ_from_each_other_does_not_matter() -> None:
    differences = 0.03 * np.random.default_rng(3).normal(size=30)
    by_spread = [unscaled(pair(differences, spread)) for spread in (0.001, 1.0, 1_000.0)]
    assert [[row.within for row in each] for each in by_spread] == [[True, True]] * 3


def test_without_a_scale_a_row_far_behind_is_shown_by_few_cases() -> None:
    differences = -1 + 0.1 * np.random.default_rng(2).normal(size=12)
    first, second = standings(pair(differences), Design(), 0.05, could_be_best=[1], compared_rows=[0, 1])
    assert (first.within, second) == (False, Standing())
    assert 0.05 < first.behind[0] < 1 < first.behind[1]


def test_without_a_scale_a_row_that_loses_much_in_few_cases_is_not_shown_to_be_good_enough() -> None:
    """Even differences with the same mean and spread are within the margin."""
    even = 0.04 * np.random.default_rng(3).normal(size=40)
    uneven = np.zeros(40)
    uneven[7] = -1.0
    uneven *= even.std() / uneven.std()
    even, uneven = even - even.mean(), uneven - uneven.mean()
    first, second = unscaled(pair(even))
    assert (first.within, second.within) == (True, True)
    loses, gains = unscaled(pair(uneven))
    assert (loses.within, gains.within) == (None, True)
    assert loses.behind[1] > 2 * first.behind[1]


def test_without_a_scale_the_interval_for_means_has_to_agree() -> None:
    """None of 40 costs may be a large one, so the bound is not much less than that of Student's t."""
    costs = np.random.default_rng(3).normal(1, 0.2, size=(2, 40))
    outcomes = unscaled(costs, ends=(0.0, math.inf), better="lower")
    spread = (costs[1] - costs[0]).std(ddof=1) / math.sqrt(40)
    for row, status in enumerate(outcomes):
        gap = float((costs[row] - costs[1 - row]).mean())
        assert status.behind[1] >= gap + 1.7 * spread


def test_without_a_scale_a_row_that_equals_the_best_in_all_cases_may_lose_what_others_do() -> None:
    scores = np.concatenate([np.ones((2, 40)), 1 - np.eye(1, 40)])
    rows = standings(scores, Design(), 0.5, could_be_best=[0, 1], compared_rows=[0, 1, 2])
    assert [row.within for row in rows[:2]] == [True, True]
    rows = standings(scores, Design(), 0.05, could_be_best=[0, 1], compared_rows=[0, 1, 2])
    assert [row.within for row in rows[:2]] == [None, None]


def test_a_matrix_tells_how_many_cases_a_metric_without_a_scale_takes(tmp_path: Path) -> None:
    def warned(cases: int, **declared: Any) -> list[str]:
        @evaluator(name="right", **declared)
        def right(case: Any, result: Any) -> float:
            return float(result.state["y"]) / 100 + 0.5

        memory, spec = in_memory(), {"evaluators": {"right": right}, "margin": {"right": 1}}
        inputs = [{"id": f"c{n}", "input": {"x": n}} for n in range(cases)]
        bench = make_bench(memory, tmp_path, sums(), inputs, {"add": "all"}, **spec)
        bench.run()
        warnings = bench.matrix()["warnings"]
        memory.close()
        return [warning for warning in warnings if "scale" in warning]

    assert warned(6) == [
        sentence(
            "{} has no declared `scale`: that a combination is within {} of the best takes "
            "at least {} {} that all of them have",
            "right",
            1,
            29,
            "cases",
        )
    ]
    assert warned(29) == []
    assert warned(6, scale=(0, 1)) == []


def sums() -> Workflow:
    wf = Workflow("sums")

    node = wf.node(lambda state, *, k=0: {"y": state["x"] % 3 + k}, name="add")
    node.variant("v1", k=1)
    wf.entry(node)
    return wf


def test_if_the_best_of_all_is_not_allowed_those_that_are_have_candidates_of_their_own() -> None:
    scores = passing(400, 0, 100, 110, 300)
    rows = standings(scores, Design(ends=SCALE), 0.05, could_be_best=[0], compared_rows=[1, 2, 3])
    assert [row.within for row in rows[1:]] == [True, None, False]


def test_few_rivals_give_the_bound_that_all_of_them_would(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    near, far = rng.random((8, 60)) < 0.97, rng.random((56, 60)) < 0.55
    scores = np.concatenate([near, far]).astype(float)
    some = standings(scores, Design(ends=SCALE), 0.1, could_be_best=range(8), compared_rows=range(64))
    monkeypatch.setattr(good_enough, "RIVALS", 64)
    assert standings(scores, Design(ends=SCALE), 0.1, could_be_best=range(8), compared_rows=range(64)) == some


def test_tiny_scores_are_compared_as_large_ones() -> None:
    scores = passing(400, 20, 36, 160)
    tiny = standings(scores * 1e-290, Design(ends=(0.0, 1e-290)), 5e-292, could_be_best=[0, 1], compared_rows=[0, 1, 2])
    large = standings(scores, Design(ends=SCALE), 0.05, could_be_best=[0, 1], compared_rows=[0, 1, 2])
    assert [row.within for row in tiny] == [row.within for row in large]


def test_a_margin_as_large_as_the_scale_is_never_lost_and_none_is_never_shown() -> None:
    scores = passing(100, 0, 50)
    assert [row.within for row in standing(scores, margin=1.0)] == [True, True]
    assert [row.within for row in standing(scores, margin=0.0)] == [True, False]
    assert [row.within for row in standing(np.ones((2, 1_000)), margin=0.0)] == [None, None]


def test_before_the_end_missing_cells_widen_what_they_could_change() -> None:
    scores = passing(1_000, 0, 0)
    scores[1, :40] = np.nan
    design = Design(ends=SCALE, missing=MissingCells.of(scores))
    first, second = look(scores, np.ones(scores.shape, dtype=np.bool_), design, scale=SCALE, margin=0.05).standings
    assert first.within is True
    assert (second.within, second.hangs_on) == (None, 40)
    assert second.behind[1] > 0.05


def test_clusters_count_once() -> None:
    scores = np.ones((2, 400))
    assert standing(scores)[1].within is True
    assert standing(scores, units=np.repeat(np.arange(20), 20))[1].within is None


def test_what_earlier_looks_used_up_is_not_used_again() -> None:
    scores = np.ones((2, 65))
    assert standing(scores)[1].within is True
    assert standing(scores, share=0.1)[1].within is None


def test_medians_have_no_bounds() -> None:
    assert standing(passing(400, 0, 200), by="median") == [Standing(), Standing()]


def test_more_rows_take_more_cases_and_those_far_behind_do_not_count() -> None:
    scores = passing(600, *([4] * 40))
    far = np.concatenate([scores[:2], np.zeros((38, 600))])
    few, many, with_far = (standing(part)[1].behind for part in (scores[:2], scores, far))
    assert few[1] < many[1]
    assert with_far[1] == pytest.approx(few[1], abs=0.002)


def test_before_the_end_intervals_hold_at_any_look() -> None:
    scores = passing(1_000, 0, 0, 500)
    finished = np.ones(scores.shape, dtype=np.bool_)
    rows = look(scores, finished, Design(ends=SCALE), scale=SCALE, margin=0.05).standings
    assert [row.within for row in rows] == [True, True, False]
    early = look(scores, np.cumsum(finished, axis=1) <= 60, Design(ends=SCALE), scale=SCALE, margin=0.05).standings
    assert early[0].within is None
    assert look(scores, finished, scale=SCALE).standings == ()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["rates", "graded", "skewed"])
def test_an_interval_holds_0_exactly_where_p_is_at_least_5_percent(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    if kind == "rates":
        differences = rng.choice([-1.0, 0.0, 1.0], p=[0.05, 0.8, 0.15], size=(60, 60))
    elif kind == "graded":
        differences = 0.25 * rng.choice([-1.0, 0.0, 1.0, 2.0], p=[0.2, 0.5, 0.2, 0.1], size=(60, 40))
    else:
        differences = rng.exponential(size=(60, 40)) - 0.75
    tests = paired_tests(differences, rates=kind == "rates")
    assert [test.ci[0] > 0 or test.ci[1] < 0 for test in tests] == [test.p < 0.05 for test in tests]
    assert 5 < sum(test.p < 0.05 for test in tests) < 60


@pytest.mark.parametrize("seed", range(4))
def test_no_interval_contradicts_a_corrected_p(seed: int) -> None:
    scores = (np.random.default_rng(seed).random((12, 80)) < np.linspace(0.6, 0.85, 12)[:, None]).astype(float)
    for row in compare(scores, Design(baseline=0, ends=SCALE)).rows[1:]:
        assert (row.delta_ci[0] > 0 or row.delta_ci[1] < 0) == (row.p_adjusted < 0.05)
