"""Nights are compared with a fixed reference: the permutation test, the levels, the trend."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tests.support import prose
from wtb.analysis.comparison.series import alert, find_trend
from wtb.analysis.statistics.anytime import LEVEL, NIGHTS, NightTest, night_tests, permuted


def _passes(rng: np.random.Generator, sweeps: int, cases: int, rate: float) -> np.ndarray:
    return (rng.random((sweeps, cases)) < rate).astype(float)


def test_the_test_of_two_sweeps_of_passes_is_the_exact_sign_test() -> None:
    rng = np.random.default_rng(1)
    for cases, rate in ((60, 0.8), (200, 0.75), (1_000, 0.86)):
        before, after = _passes(rng, 1, cases, 0.9), _passes(rng, 1, cases, rate)
        better, differ = int((after > before).sum()), int((after != before).sum())
        exact = stats.binomtest(better, differ, alternative="less").pvalue
        assert permuted(before, after) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize(("earlier", "later"), [(1, 3), (5, 1), (4, 4)])
@pytest.mark.parametrize("kind", ["passes", "five levels", "skewed"])
def test_the_tails_are_those_of_the_permutations(earlier: int, later: int, kind: str) -> None:
    rng = np.random.default_rng(7)
    draw = {
        "passes": lambda shape, fell: (rng.random(shape) < 0.9 - 0.12 * fell) * 1.0,
        "five levels": lambda shape, fell: np.clip(np.round(rng.normal(4 - 0.4 * fell, 1, shape)), 1, 5),
        "skewed": lambda shape, fell: rng.exponential(1 - 0.25 * fell, shape),
    }[kind]
    before, after = draw((earlier, 40), 0), draw((later, 40), 1)
    both, observed, hits, draws = np.concatenate([before, after]), after.sum(), 0, 40
    for _ in range(draws):
        order = rng.random((2_000, *both.shape)).argsort(axis=1)[:, :later]
        hits += int((np.take_along_axis(both[None], order, axis=1).sum(axis=(1, 2)) <= observed + 1e-9).sum())
    sampled = hits / (draws * 2_000)
    assert permuted(before, after) == pytest.approx(sampled, rel=0.1, abs=4 * np.sqrt(max(sampled, 1e-5) / 80_000))


def test_sweeps_that_are_equal_in_every_case_are_no_fall_and_a_fall_in_all_is_as_seldom_as_it_can_be() -> None:
    same = np.ones((1, 10))
    assert permuted(same, same) == 1.0
    assert permuted(same, same - 1) == pytest.approx(2.0**-10, rel=0.1)
    assert permuted(same * 0.5, same * 0.1234) == pytest.approx(2.0**-10, rel=0.1)


def test_missing_cells_speak_against_a_fall() -> None:
    reference, tonight = np.ones((1, 40)), np.zeros((1, 40))
    (tests,) = night_tests([reference], [tonight])
    assert tests[0].is_fall
    tonight[0, :35] = np.nan
    (tests,) = night_tests([reference], [tonight])
    assert (tests[0].is_fall, tests[0].units) == (False, 40)


def test_a_loss_within_the_margin_is_no_fall() -> None:
    rng = np.random.default_rng(3)
    reference = rng.random((1, 200))
    (tests,) = night_tests([reference], [reference - 0.02], margin=0.05)
    assert (tests[0].p < tests[0].level, tests[0].is_fall) == (True, False)
    (tests,) = night_tests([reference], [reference - 0.08], margin=0.05)
    assert tests[0].is_fall


def test_nights_that_fell_are_no_alarm_once_tonight_has_recovered() -> None:
    reference, fell = np.ones((1, 100)), np.ones((1, 100))
    fell[0, :30] = 0
    (tests,) = night_tests([reference], [fell, fell, fell, reference])
    assert [(test.nights, test.is_fall) for test in tests] == [(1, False), (4, False)]
    (tests,) = night_tests([reference], [fell, fell, fell, fell])
    assert [(test.nights, test.is_fall) for test in tests] == [(1, True), (4, True)]


def test_nights_and_rows_share_the_level() -> None:
    rng = np.random.default_rng(5)
    sweeps = [rng.random((6, 50)) for _ in range(5)]
    by_row = night_tests(sweeps[:2], sweeps[2:], metrics=2)
    assert len(by_row) == 7
    assert {test.nights for tests in by_row for test in tests} == {1, 3}
    assert 2 * sum(test.level for tests in by_row for test in tests) < LEVEL
    assert pytest.approx(0.05) == LEVEL * NIGHTS
    sweeps[0][2:] = np.nan  # the reference does not have these rows
    by_row = night_tests(sweeps[:1], sweeps[1:])
    assert [len(tests) for tests in by_row] == [2, 2, 0, 0, 0, 0, 2]


def test_a_slide_a_step_and_tonight_are_told_apart() -> None:
    slide = find_trend(0.9, [0.9, 0.9, 0.89, 0.88, 0.87, 0.86])
    assert (slide.kind, slide.nights, round(slide.end, 2), round(slide.a_night, 3)) == ("slide", 4, 0.86, -0.01)
    step = find_trend(0.9, [0.9, 0.91, 0.8, 0.8, 0.81, 0.79])
    assert (step.kind, step.nights, round(step.end, 2)) == ("step", 4, 0.8)
    assert find_trend(0.9, [0.9, 0.9, 0.7]).kind == "tonight"


def test_two_nights_that_fall_are_no_slide_and_three_are() -> None:
    two, three = find_trend(0.9, [0.89, 0.88]), find_trend(0.9, [0.89, 0.88, 0.87])
    assert ((two.kind, two.nights), (three.kind, three.nights)) == (("step", 2), ("slide", 3))


@pytest.mark.parametrize(
    ("means", "sentence"),
    [
        (
            [0.89, 0.88, 0.87, 0.86, 0.85, 0.84],
            "f1: night 6 of a slide: 0.9 -> 0.84 since 2026-11-01 (fixed reference), p < 0.001, -0.01 a night",
        ),
        ([0.9, 0.8, 0.8], "f1: night 2 of a fall: 0.9 -> 0.8 against 2026-11-01 (fixed reference), p < 0.001"),
        (
            [0.9, 0.9, 0.8],
            "f1"
            + prose.sentence(": {} in this run: {} against {}", "fell", "0.9 -> 0.8", "2026-11-01")
            + " (fixed reference), p < 0.001",
        ),
    ],
)
def test_the_alert_says_what_the_nights_look_like(means: list[float], sentence: str) -> None:
    test = NightTest(nights=1, p=1e-5, level=1e-3, before=0.9, after=means[-1], units=100, low=-0.2)
    assert alert("f1", "higher", test, find_trend(0.9, means), "2026-11-01") == sentence
