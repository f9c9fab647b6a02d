"""Figures of a running sweep are valid however often you look, and depend on the recorded order of its cases."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.interim import why_anytime
from wtb.analysis.statistics import Design, Floats
from wtb.analysis.statistics.anytime import bounded, claims
from wtb.analysis.statistics.running import look
from wtb.core.tree.run_order import case_order

ALL = np.ones((2, 200), dtype=np.bool_)


def passes(seed: int, *rates: float, cases: int = 200) -> Floats:
    rng = np.random.default_rng(seed)
    return np.stack([(rng.random(cases) < rate).astype(float) for rate in rates])


# The order of cases


def test_the_order_of_cases_rests_on_the_seed_alone_and_mixes_all_of_them() -> None:
    order = case_order([None] * 5_000, 3)
    assert order == case_order([None] * 5_000, 3) != case_order([None] * 5_000, 4)
    assert sorted(order) == list(range(5_000))
    assert abs(np.mean(order[:500]) - 2_500) < 4 * 1_443 / math.sqrt(500), "the first are a sample of all"


def test_cases_of_a_cluster_begin_together_and_clusters_in_any_order() -> None:
    clusters = [None, "b", "a", "b", "a", None]
    order = case_order(clusters, 1)
    assert sorted(order) == list(range(6))
    assert abs(order.index(1) - order.index(3)) == 1
    assert abs(order.index(2) - order.index(4)) == 1
    assert len({tuple(case_order(clusters, seed)) for seed in range(200)}) == 24


# What a look may see


def test_only_the_first_cases_that_have_finished_without_a_gap_are_looked_at() -> None:
    scores, finished = passes(1, 0.5, 0.5), ALL.copy()
    finished[0, 20:] = False
    finished[1, 30] = False
    snapshot = look(scores, finished, Design(baseline=0), scale=(0, 1))
    assert snapshot.cases == 20
    assert [row.n for row in snapshot.compared.rows] == [20, 30]
    assert snapshot.compared.rows[1].n_pairs == 20
    assert snapshot.compared.rows[1].mean == scores[1, :30].mean()
    scores[1, 31:] = 1 - scores[1, 31:]
    assert look(scores, finished, Design(baseline=0), scale=(0, 1)) == snapshot, "what finished early is not looked at"


def test_what_has_finished_without_a_score_holds_nothing_up() -> None:
    scores = passes(1, 0.9, 0.2)
    scores[0, [3, 7]] = math.nan
    snapshot = look(scores, ALL, scale=(0, 1))
    assert (snapshot.cases, snapshot.compared.rows[0].n, snapshot.compared.cases) == (200, 198, 198)
    assert snapshot.compared.clear


def test_a_row_that_lacks_many_scores_is_not_ranked() -> None:
    scores = passes(1, 0.2, 0.9)
    scores[1, ::5] = math.nan
    comparison = look(scores, ALL, scale=(0, 1)).compared
    assert (comparison.best, comparison.unranked, comparison.clear) == (0, (1,), False)


def test_nothing_is_named_before_a_case_has_ended_in_all() -> None:
    comparison = look(passes(1, 0.2, 0.9), ~ALL, Design(baseline=0), scale=(0, 1)).compared
    assert (comparison.best, comparison.candidates, comparison.rows[0].mean) == (None, (), None)
    assert comparison.lead.because == sentence("no case has ended in all of them yet")


def test_no_figure_of_a_look_is_a_p() -> None:
    rows = look(passes(1, 0.2, 0.9), ALL, Design(baseline=0), scale=(0, 1)).compared.rows
    assert all((row.p, row.p_adjusted, row.effect, row.detectable, row.ranks) == (None,) * 5 for row in rows)


def test_lower_is_turned_around() -> None:
    scores = passes(1, 0.2, 0.9)
    up = look(1 - scores, ALL, scale=(0, 1)).compared
    down = look(scores, ALL, Design(better="lower"), scale=(0, 1)).compared
    assert (up.best, up.clear, up.candidates) == (down.best, down.clear, down.candidates) == (0, True, (0,))
    assert up.lead.lead == pytest.approx(down.lead.lead)


def test_a_claim_is_never_withdrawn_by_more_cases() -> None:
    scores = passes(2, 0.2, 0.7)
    clear = [look(scores[:, :n], ALL[:, :n], scale=(0, 1)).compared.clear for n in range(1, 201)]
    assert clear == sorted(clear)
    assert 10 < clear.index(True) < 100


def test_without_a_scale_intervals_are_asymptotic_and_need_more_cases_the_more_rows_there_are() -> None:
    scores = passes(1, 0.2, 0.9) * 7
    early, late = (look(scores[:, :n], ALL[:, :n], Design(baseline=0)) for n in (129, 200))
    assert (early.interval, early.compared.rows[1].delta_ci, early.compared.clear) == ("asymptotic", None, False)
    assert early.compared.lead.because == (
        "no scale of the scores is declared, and without one 130 cases are needed to show a difference"
    )
    assert late.compared.clear
    many = np.vstack([scores, *(passes(seed, 0.5, 0.5) for seed in range(2, 9))])
    wide = look(many, np.ones_like(many, dtype=np.bool_), Design(baseline=0))
    assert all(row.delta_ci is None for row in wide.compared.rows), "16 rows need 220 cases"


@pytest.mark.parametrize("shape", ["seldom", "never yet", "far ones"])
def test_without_a_scale_uneven_differences_show_nothing_before_the_end(shape: str) -> None:
    rng = np.random.default_rng(1)
    gains = np.full(200, 0.02) + rng.normal(size=200) * 1e-3
    if shape == "seldom":
        gains[[40, 90, 150]] = -0.65
    elif shape == "never yet":
        gains[:] = 0.02
    else:
        gains = rng.lognormal(0, 2, 200)
    base = rng.normal(size=200)
    comparison = look(np.stack([base, base + gains]), ALL, Design(baseline=0)).compared
    assert (comparison.rows[1].delta_ci, comparison.clear) == (None, False)
    assert sentence("differences this uneven show nothing before the end") in str(comparison.lead.because)


def test_typical_differences_are_not_judged_before_the_end() -> None:
    snapshot = look(passes(1, 0.2, 0.9), ALL, Design(baseline=0, by="median"))
    assert (snapshot.interval, snapshot.behind, snapshot.compared.clear) == (None, None, False)
    assert snapshot.compared.candidates == (0, 1)


def test_a_cluster_counts_once_and_only_as_a_whole() -> None:
    scores, finished = passes(1, 0.5, 0.5, cases=10), np.ones((2, 10), dtype=np.bool_)
    finished[0, 7] = False
    units = np.repeat(np.arange(5), 2)
    snapshot = look(scores, finished, Design(baseline=0, units=units), scale=(0, 1))
    assert (snapshot.cases, snapshot.compared.rows[1].n) == (6, 10)
    by_cluster = (scores[1] - scores[0])[:6].reshape(1, 3, 2).mean(axis=2)
    assert snapshot.compared.rows[1].delta_ci == pytest.approx(tuple(bounded(by_cluster, -1, 1)[0]))


def test_enough_is_known_where_no_other_can_be_better_by_what_matters() -> None:
    scores = passes(4, 0.5, 0.5, cases=600)
    snapshot = look(scores, np.ones_like(scores, dtype=np.bool_), scale=(0, 1))
    assert not snapshot.is_known()
    assert snapshot.is_known(snapshot.behind + 0.01)
    assert not snapshot.is_known(snapshot.behind - 0.01)


# Whether it is the end


@pytest.mark.parametrize(
    ("status", "reason", "unfinished", "dropped", "because"),
    [
        ("completed", None, 0, 0, None),
        ("completed", "known: a is best", 0, 9, sentence("the sweep stopped when enough was known")),
        ("completed", None, 3, 0, sentence("{} cell{} to run again", 3, "s are")),
        ("completed", None, 0, 1, sentence("{} cell{} cancelled or skipped", 1, " was")),
        ("running", None, 5, 0, sentence("the sweep is running")),
        ("paused", sentence("limit reached: {} = {}", "usd", 1), 5, 0, sentence("the sweep is paused")),
        ("cancelled", None, 0, 5, sentence("the sweep was cancelled")),
        ("failed", "no such module", 5, 0, sentence("the sweep failed")),
        ("pending", None, 5, 0, sentence("the sweep has not begun")),
    ],
)
def test_figures_of_the_end_are_those_of_a_sweep_that_ran_as_planned(
    status: str, reason: str | None, unfinished: int, dropped: int, because: str | None
) -> None:
    assert why_anytime(status, reason, unfinished, dropped) == because


# The arithmetic, against one that is slow and written another way


def bet(values: list[float], mean: float, level: float) -> float:
    """The highest capital of bets that values of 0 to 1 have a higher mean (Waudby-Smith & Ramdas)."""
    capital = highest = 1.0
    seen: list[float] = []
    middle, squares = [], []
    for turn, observation in enumerate(values, 1):
        variance = (0.25 + math.fsum(squares)) / turn
        stake = math.sqrt(2 * math.log(1 / level) / (variance * turn * math.log(turn + 1)))
        capital *= 1 + min(stake, 0.5 / mean) * (observation - mean)
        highest = max(highest, capital)
        seen.append(observation)
        middle.append((0.5 + math.fsum(seen)) / (turn + 1))
        squares.append((observation - middle[-1]) ** 2)
    return highest


@pytest.mark.parametrize("seed", range(4))
def test_an_interval_has_every_mean_that_betting_has_not_ruled_out(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.betavariate(2, 1 + seed) for _ in range(60)]
    ((low, high),) = bounded(np.array([values]), 0, 1).tolist()
    for candidate in np.linspace(0.02, 0.98, 49).tolist():
        others = [1 - observation for observation in values]
        is_out = max(bet(values, candidate, 0.025), bet(others, 1 - candidate, 0.025)) >= 40
        if min(abs(candidate - low), abs(candidate - high)) > 1e-4:
            assert is_out == (not low < candidate < high), candidate


def test_a_family_of_claims_asks_more_of_each() -> None:
    gains = (passes(3, 0.55, cases=100) - passes(4, 0.3, cases=100))[:1]
    assert claims(gains, 1).all()
    assert not claims(gains, 1, family=10_000_000).any()
