"""With the largest and smallest possible scores, no figure is infinite or contradicts another one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from wtb.analysis.matrix.attribution import attributed
from wtb.analysis.statistics import Design, Floats, compare
from wtb.analysis.statistics.anytime import bounded, claims
from wtb.analysis.statistics.claims import MissingCells
from wtb.analysis.statistics.comparing import Estimate
from wtb.analysis.statistics.good_enough import Standing, is_more, standings
from wtb.analysis.statistics.intervals import logistic, tail_quantile
from wtb.analysis.statistics.margins import Sides, hold
from wtb.analysis.statistics.power import detectable, pairs_needed
from wtb.analysis.statistics.running import look, spendable

pytestmark = pytest.mark.filterwarnings("error")

EXTREMES = (
    *(0.0, 1.0, 0.5, 1e-17, 1 - 1e-16, 1e300, -1e300, 1e-300, 1e99, -1e99, 1e-99, 1e60, 1e-60, 1e-90, 3.0, -2.0),
    *(math.nan, math.inf, -math.inf),
)
MARGINS = (0.0, 0.05, 1e-300, 1e300, 1.0, 5.0)
SHARES = (1.0, 0.3, 1e-9, 1e-200, 5e-324)


def drawn(rng: np.random.Generator) -> Floats:
    """Scores of a few rows and cases, of a randomly chosen kind."""
    rows, cases = int(rng.integers(1, 7)), int(rng.choice([1, 2, 3, 5, 6, 7, 12, 13, 14, 30]))
    size, kind = (rows, cases), int(rng.integers(6))
    if kind == 0:
        return rng.choice(EXTREMES, size=size)
    if kind == 1:  # constant rows
        return rng.choice(EXTREMES, size=(rows, 1)) + np.zeros(size)
    if kind == 2:
        return np.asarray(rng.normal(size=size) * 10.0 ** int(rng.integers(-120, 120)))
    if kind == 3:
        return np.where(rng.random(size) < 0.2, math.nan, rng.random(size) < 0.9)
    if kind == 4:  # cases that are alike in all rows
        return np.where(rng.random(cases) < 0.3, rng.choice(EXTREMES), rng.normal(size=size))
    return np.where(rng.random(size) < 0.9, rng.choice(EXTREMES), rng.choice(EXTREMES, size=size))


def designed(rng: np.random.Generator, scores: Floats) -> Design:
    """A design that the scores allow."""
    rows, cases = scores.shape
    finite = scores[np.isfinite(scores)]
    ends: list[tuple[float, float] | None] = [None]
    if finite.size:
        ends += [(float(finite.min()), float(finite.max()))]
        ends += [(0.0, math.inf)] if finite.min() >= 0 else []
        ends += [(0.0, 1.0)] if finite.min() >= 0 and finite.max() <= 1 else []
    units = np.unique(rng.integers(0, max(1, cases // 2), size=cases), return_inverse=True)[1]
    counted = np.where(np.isfinite(scores) & (np.abs(scores) < 1e100), scores, math.nan)
    return Design(
        baseline=int(rng.integers(rows)) if rng.random() < 0.8 else None,
        better="lower" if rng.random() < 0.5 else "higher",
        by="median" if rng.random() < 0.2 else "mean",
        units=units if rng.random() < 0.4 else None,
        share=float(rng.choice(SHARES)),
        metrics=int(rng.choice([1, 3, 40])),
        ends=ends[int(rng.integers(len(ends)))],
        missing=MissingCells.of(counted) if rng.random() < 0.5 else None,
    )


def check_rows(rows: Iterable[Estimate]) -> None:
    for row in rows:
        figures = (row.mean, row.delta, row.p, row.p_adjusted, row.effect, row.detectable)
        assert all(figure is None or math.isfinite(figure) for figure in figures), row
        assert all(ci is None or (ci[0] <= ci[1] and math.isfinite(ci[0])) for ci in (row.ci, row.delta_ci)), row
        if row.delta_ci is not None and row.p_adjusted is not None:
            assert (row.delta_ci[0] > 0 or row.delta_ci[1] < 0) == (row.p_adjusted < 0.05), row


def check_standings(rows: Sequence[Standing], margin: float) -> None:
    for row in rows:
        if row.behind is None:
            assert (row.within, row.hangs_on) == (None, None)
            continue
        low, high = row.behind
        assert 0 <= low <= high < math.inf, row
        assert row.within is (True if not is_more(high, margin) else False if is_more(low, margin) else None), row
        assert row.hangs_on is None or row.within is None, row


@pytest.mark.parametrize("seed", range(200))
def test_answers_intervals_and_p_agree_whatever_the_scores_are(seed: int) -> None:
    rng = np.random.default_rng([seed, 44])
    scores = drawn(rng)
    design, margin = designed(rng, scores), float(rng.choice(MARGINS))
    comparison = compare(scores, design)
    check_rows(comparison.rows)
    allowed = [row for row in range(len(scores)) if rng.random() < 0.9]
    rows = standings(scores, design, margin, could_be_best=comparison.candidates, compared_rows=allowed)
    check_standings(rows, margin)
    scale = design.ends if design.ends and math.isfinite(design.ends[1]) else None
    seen = look(scores, rng.random(scores.shape) < 0.97, design, scale=scale, margin=margin)
    check_rows(seen.compared.rows)
    check_standings(seen.standings, margin)


@pytest.mark.parametrize("seed", range(60))
def test_two_nights_and_effects_are_finite_whatever_the_scores_are(seed: int) -> None:
    rng = np.random.default_rng([seed, 45])
    scores = drawn(rng)
    with np.errstate(invalid="ignore", over="ignore"):
        gains = scores[1:] - scores[:1]
    for parts in hold([Sides(gains)], [[0, 1]] if len(gains) > 1 else []):
        for contrast in (*parts[0], *parts[1]):
            figures = (contrast.delta, contrast.low, contrast.worse, contrast.margin)
            assert all(figure is None or math.isfinite(figure) for figure in figures)
    counted = np.where(np.abs(scores) < 1e100, scores, math.nan)
    choices = [{"a": str(row % 2), "b": str(row // 2)} for row in range(len(scores))]
    effects = attributed(counted, choices, "right", seed=0, missing=MissingCells.of(counted))
    for factor in effects["nodes"]:
        assert 0 < factor["p"] <= factor["p_adjusted"] <= 1
        ends = [level["ci"] for level in factor["variants"]]
        intervals = [ci for ci in ends if ci is not None]
        assert all(math.isfinite(low) and low <= high for low, high in intervals)
        if len(intervals) == len(ends):
            assert any(low > 0 or high < 0 for low, high in intervals) == (factor["p_adjusted"] < 0.05)


@pytest.mark.parametrize("tail", [5e-324, 1e-300, 1e-17, 1e-16, 0.025, 0.5, 1 - 1e-16, 1.0])
def test_a_quantile_is_finite_however_far_out(tail: float) -> None:
    assert -9 < tail_quantile(tail) < 38


def test_odds_beyond_all_numbers_have_a_probability() -> None:
    assert [logistic(odds) for odds in (-1e300, 0.0, 1e300)] == [0.0, 0.5, 1.0]


def test_after_any_number_of_looks_something_may_be_spent() -> None:
    parts = [spendable(before, 3) for before in (10.0, 1e6, 1e20, 1e100)]
    assert 0 < parts[3] < parts[2] < parts[1] < parts[0] < 0.5
    assert spendable(4, 5) == pytest.approx(0.5 * (1 / 2 - 1 / 3))


def test_a_tiny_effect_takes_very_many_pairs() -> None:
    assert pairs_needed(np.array([1e-300]), np.array([1e99]), 1.96) >= 10**17
    assert pairs_needed(np.array([1e-300, 1.0]), np.array([1.0, 1.0]), 38.0) >= 10**17


def test_a_family_of_any_size_has_a_detectable_difference_or_none() -> None:
    assert detectable(1.0, 5_000, 10**300) != (None, None)
    assert detectable(1.0, 50, 10**300) == (None, None)


def test_sequences_hold_at_any_level() -> None:
    scores = np.ones((2, 400))
    assert np.isfinite(bounded(scores, 0.0, 1.0, 5e-324)).all()
    assert not claims(scores[:, :5], 1.0, 5e-324).any()
