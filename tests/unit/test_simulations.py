"""On sweeps whose truth is known the statistics are right as often as they say: what `make simulate` does, in small."""

from __future__ import annotations

import math

import pytest

from simulations import experiments
from simulations.experiments import Found

RUNS = 400


def slack(share: float) -> float:
    """Three and a half standard errors."""
    return 3.5 * math.sqrt(share * (1 - share) / RUNS)


@pytest.mark.parametrize("cases", [10, 37, 100])
def test_intervals_cover_normal_scores_and_rates_as_often_as_they_say(cases: int) -> None:
    found = {one.shape: one for one in experiments.coverage_of_means(cases, RUNS, 3)}
    assert found["normal"].share == pytest.approx(0.95, abs=slack(0.95))
    for rate in ("50%", "90%", "98%"):
        assert found[f"pass rate {rate}"].share >= 0.92 - slack(0.92)
    assert found["very skewed (lognormal, sigma 1)"].share >= 0.83 - slack(0.83)


@pytest.mark.parametrize("cases", [10, 37, 100])
def test_intervals_of_differences_cover(cases: int) -> None:
    for one in experiments.coverage_of_differences(cases, RUNS, 3):
        least = 0.87 if "skewed" in one.shape else 0.94
        assert one.share >= least - slack(least), one


@pytest.mark.parametrize("cases", [10, 37])
def test_false_alarms_stay_below_5_percent(cases: int) -> None:
    found: list[Found] = [
        *experiments.false_alarms(cases, RUNS, 3),
        *experiments.false_winners(cases, RUNS // 4, 3),
        *experiments.false_effects(cases, RUNS // 4, 3),
    ]
    for one in found:
        assert one.share <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / one.runs), one


@pytest.mark.parametrize("cases", [10, 37, 100])
def test_the_detectable_difference_is_detected_80_times_of_100(cases: int) -> None:
    found = {(one.experiment, one.shape): one.share for one in experiments.power(cases, RUNS, 3)}
    for experiment in ("power at the detectable difference", "power where so many cases are said to be needed"):
        assert found[experiment, "normal differences"] == pytest.approx(0.8, abs=slack(0.8) + 0.03)
