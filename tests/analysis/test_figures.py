"""Figures by name, the front, and the combination that `best` selects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support import documents
from tests.support.prose import sentence
from wtb.analysis.matrix.selection import choose, decide, fronts
from wtb.analysis.statistics.best import front
from wtb.core.expressions import Name, UnknownValue, parse_condition
from wtb.planning.metric_names import SWEEP_WIDE, row_figure, sweep_figure, unknown_figure


def row(name: str, ndcg: float | None, usd: float | None, seconds: float | None, **more: Any) -> dict[str, Any]:
    statistics = {"n": 10, "n_pairs": 9, "mean": ndcg, "ci": None if ndcg is None else [ndcg - 0.1, ndcg + 0.1]}
    statistics |= {"delta": 0.05, "delta_ci": [0.01, 0.09], "p": 0.01, "p_adjusted": 0.03, "common_mean": ndcg}
    return {
        "combination": {"retrieve": name},
        "n": 10,
        "succeeded": 0 if usd is None else 10,
        "failed": 0,
        "cost_usd": usd,
        "cost_failed_usd": 0.0,
        "cost_per_success_usd": usd,
        "latency_s": {"p50": seconds, "p95": seconds and seconds * 2},
        "metrics": {
            "ndcg": statistics,
            "exact match": statistics,
            "shape.n": {**statistics, "mean": 7.0, "common_mean": 7.0},
        },
        **more,
    }


MATRIX: dict[str, Any] = documents.whole_matrix(
    {
        "sweep": {"id": "1", "name": "s"},
        "cells": {"total": 40, "succeeded": 36, "failed": 3, "set_aside": 1},
        "cost": {"usd": 1.5, "tokens_in": 20, "tokens_out": 10},
        "node_runs": {"executed": 50, "unshared": 90, "attempts": 51},
        "baseline": {"retrieve": "bm25"},
        "rows": [
            row("bm25", 0.2, 0.001, 0.1),
            row("dense", 0.3, 0.02, 0.3),
            row("slow", 0.25, 0.03, 0.4),
            row("broken", None, None, None),
        ],
        "metrics": {"ndcg": {"better": "higher"}, "exact match": {"better": "higher"}, "shape.n": {"better": "lower"}},
        "best": {
            metric: {"combination": None, "because": "why", "unranked": []}
            for metric in ("ndcg", "exact match", "shape.n")
        },
    }
)


def figure(text: str, number: int = 1) -> float:
    (name,) = parse_condition(f"{text} < 0").names
    return row_figure(MATRIX, MATRIX["rows"][number], name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ndcg", 0.3),
        ("ndcg.mean", 0.3),
        ("ndcg.low", 0.2),
        ("ndcg.high", 0.4),
        ("ndcg.delta", 0.05),
        ("ndcg.delta_low", 0.01),
        ("ndcg.delta_high", 0.09),
        ("ndcg.n", 10),
        ("ndcg.p", 0.03),
        ('"exact match".mean', 0.3),
        ("shape.n", 7.0),
        ("shape.n.n", 10),
        ("cost_usd", 0.02),
        ("latency_s.p50", 0.3),
        ("latency_s.p95", 0.6),
        ("n", 10),
        ("failed", 0),
        ("baseline.ndcg", 0.2),
        ("baseline.cost_usd", 0.001),
        ("min(ndcg.mean)", 0.2),
        ("max(cost_usd)", 0.03),
    ],
)
def test_a_row_s_figure_has_a_name(text: str, expected: float) -> None:
    assert figure(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "number", "reason"),
    [
        ("recall.mean", 1, "nothing is scored by 'recall'; scored are ndcg, exact match, shape.n"),
        ("ndcg", 3, "retrieve=broken has no score by ndcg"),
        ("cost_usd", 3, "there is no cost_usd of retrieve=broken, of which no cell succeeded"),
    ],
)
def test_a_figure_that_is_not_there_is_no_number(text: str, number: int, reason: str) -> None:
    with pytest.raises(UnknownValue) as raised:
        figure(text, number)
    assert str(raised.value) == reason


def test_without_a_baseline_nothing_is_told_of_it() -> None:
    matrix = {**MATRIX, "baseline": None}
    with pytest.raises(UnknownValue, match=sentence("the sweep has no baseline")):
        row_figure(matrix, MATRIX["rows"][0], Name(("baseline", "ndcg")))


def test_a_sweep_s_figure_has_a_name() -> None:
    figures = {path: sweep_figure(MATRIX, Name(tuple(path.split(".")))) for path in SWEEP_WIDE}
    assert (figures["failed"], figures["total"], figures["cost_usd.total"]) == (4, 40, 1.5)
    assert (figures["node_runs.executed"], figures["scores_failed"]) == (50, 0)
    assert sweep_figure({**MATRIX, "scores_failed": 3}, Name(("scores_failed",))) == 3
    with pytest.raises(UnknownValue, match=sentence("no figure of a sweep is called {}", "'ndcg'")):
        sweep_figure(MATRIX, Name(("ndcg",)))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ndcg.mean", None),
        ("max(ndcg.low)", None),
        ("shape.sides.n", None),
        ("baseline.shape.sides", None),
        ("latency_s.p95", None),
        ("scores_failed", None),
        ("max(scores_failed)", sentence("no evaluator gives {}", "'scores_failed'")),
        ("ndgc.mean", sentence("no evaluator gives {}", "'ndgc'") + sentence("; did you mean '{}'?", "ndcg")),
        ("ndcg.men", sentence("no evaluator gives {}", "'ndcg.men'") + sentence("; did you mean '{}'?", "ndcg.mean")),
        ("baseline.xyz", sentence("no evaluator gives {}", "'xyz'") + sentence("; scored are {}", "ndcg, shape")),
        (
            "latency_s.p59",
            sentence("no evaluator gives {}", "'latency_s.p59'") + sentence("; did you mean '{}'?", "latency_s.p95"),
        ),
    ],
)
def test_a_figure_that_no_matrix_could_have_is_known_before_there_is_one(text: str, problem: str | None) -> None:
    (name,) = parse_condition(f"{text} < 0").names
    error = unknown_figure(name, {"ndcg": True, "shape": False}, of_sweep=True)
    assert error == problem if problem is None else str(error).startswith(problem)


# The front


def test_the_front_is_what_nothing_beats_in_every_respect() -> None:
    assert front(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0], [3.0, 3.0], [2.0, np.nan]])) == [0, 1, 2]
    assert front(np.array([[1.0, 1.0], [1.0, 1.0]])) == [0, 1]
    assert front(np.empty((0, 3))) == []


def test_the_front_is_over_mean_cost_and_latency() -> None:
    on_front = fronts(MATRIX)
    assert on_front["ndcg"] == [0, 1]
    assert on_front["shape.n"] == [0]


# The choice


@pytest.mark.parametrize(
    ("best", "combination", "left_out"),
    [
        ({"maximize": "ndcg"}, "dense", 1),
        ({"maximize": "ndcg", "subject_to": "cost_usd < 0.01"}, "bm25", 3),
        ({"minimize": "cost_usd", "subject_to": "ndcg >= 0.22"}, "dense", 2),
        ({"minimize": "latency_s.p50"}, "bm25", 1),
        ({"maximize": "exact match", "subject_to": "latency_s.p50 < 5 * baseline.latency_s.p50"}, "dense", 1),
    ],
)
def test_the_best_that_is_asked_for_is_chosen(best: dict[str, str], combination: str, left_out: int) -> None:
    choice = choose(MATRIX, best)
    assert choice["combination"] == {"retrieve": combination}
    assert (choice["because"], choice["left_out"]) == (None, left_out)


def test_the_metric_that_decides_is_chosen_by_where_none_is_named() -> None:
    matrix = {**MATRIX, "primary": "shape.n"}
    choice = choose(matrix, {"subject_to": "cost_usd > 0.01"})
    assert choice["objective"] == "minimize shape.n subject to cost_usd > 0.01"
    choice = choose({**MATRIX, "primary": "ndcg"}, {}, 0.0)
    assert choice["objective"] == "maximize ndcg, within 0 of the best"
    assert choice["combination"] == {"retrieve": "dense"}
    assert choose({**MATRIX, "primary": None}, {})["combination"] is None


def within(name: str, ndcg: float, usd: float, is_shown: bool | None, **more: Any) -> dict[str, Any]:
    base = row(name, ndcg, usd, 0.1, **more)
    standing = {"margin": 0.05, "shown": is_shown, "behind": [0.0, 0.04]}
    return {**base, "metrics": {**base["metrics"], "ndcg": {**base["metrics"]["ndcg"], "within": standing}}}


@pytest.mark.parametrize(
    ("within_margin", "combination"),
    [
        ((None, None, None), "dense"),
        ((None, True, None), "dense"),
        ((None, True, True), "slow"),
        ((True, True, True), "bm25"),
        ((False, None, True), "slow"),
    ],
)
def test_the_cheapest_that_is_shown_to_be_within_the_margin_is_chosen(
    within_margin: tuple[bool | None, ...], combination: str
) -> None:
    """If no combination is shown to be within the margin, the one with the best figure is chosen."""
    names = [("bm25", 0.2, 0.001), ("dense", 0.3, 0.02), ("slow", 0.25, 0.01)]
    rows = [within(*figures, is_within) for figures, is_within in zip(names, within_margin, strict=True)]
    choice = choose({**MATRIX, "rows": rows}, {"maximize": "ndcg"}, 0.05)
    assert choice["combination"] == {"retrieve": combination}
    assert choice["objective"] == "maximize ndcg, within 0.05 of the best"
    assert (choice["margin"], choice["within"]) == (0.05, sum(flag is True for flag in within_margin))


def test_the_cheapest_is_so_with_what_its_failures_cost() -> None:
    rows = [
        within("bm25", 0.3, 0.001, True, cost_failed_usd=1.0, cost_per_success_usd=0.101),
        within("dense", 0.3, 0.02, True, latency_s={"p50": 0.3, "p95": 0.6}),
    ]
    choice = choose({**MATRIX, "rows": rows}, {"maximize": "ndcg"}, 0.01)
    assert choice["combination"] == {"retrieve": "dense"}
    assert fronts({**MATRIX, "rows": rows})["ndcg"] == [0, 1], "the first is quicker"


@pytest.mark.parametrize("figure", ["cost_usd", "latency_s.p50"])
def test_what_fails_often_is_not_chosen_by_what_its_successes_take(figure: str) -> None:
    rows = [row("bm25", 0.2, 0.001, 0.1, succeeded=1, failed=9), row("dense", 0.3, 0.02, 0.3)]
    assert choose({**MATRIX, "rows": rows}, {"minimize": figure})["combination"] == {"retrieve": "dense"}
    choice = choose({**MATRIX, "rows": rows[:1]}, {"minimize": figure})
    assert choice["combination"] is None
    assert choice["because"].startswith(f"only 1 of 10 cells of retrieve=bm25 succeeded, too few to go by {figure}")


def test_what_is_not_ranked_is_not_on_the_front_and_not_chosen() -> None:
    lacking = row("bm25", 0.9, 0.001, 0.1)
    lacking["metrics"]["ndcg"] = {**lacking["metrics"]["ndcg"], "n": 3, "common_mean": None}
    best = {"ndcg": {"combination": {"retrieve": "dense"}, "unranked": [{"retrieve": "bm25"}]}}
    rows = [lacking, row("dense", 0.3, 0.02, 0.3)]
    matrix = {**MATRIX, "rows": rows, "best": best, "metrics": {"ndcg": {"better": "higher"}}}
    assert fronts(matrix)["ndcg"] == [1]
    assert choose(matrix, {"maximize": "ndcg"})["combination"] == {"retrieve": "dense"}
    choice = choose({**matrix, "rows": [lacking]}, {"maximize": "ndcg"})
    assert choice["because"] == "retrieve=bm25 is not ranked by ndcg: it has a score in 3 cases, less than 95% of them"


def test_where_none_can_be_chosen_it_is_said_why() -> None:
    choice = choose(MATRIX, {"maximize": "recall"})
    assert choice == {
        "objective": "maximize recall",
        "combination": None,
        "because": "nothing is scored by 'recall'; scored are ndcg, exact match, shape.n",
        "left_out": 4,
    }
    choice = choose(MATRIX, {"maximize": "ndcg", "minimize": None, "subject_to": "cost_usd < 0"})
    assert choice["objective"] == "maximize ndcg subject to cost_usd < 0"
    assert choice["because"].startswith("no combination is known to have cost_usd < 0")


def test_the_decision_is_of_the_combinations_that_are_allowed() -> None:
    best = {"maximize": "ndcg", "subject_to": "cost_usd < 0.01"}
    decision = decide({**MATRIX, "choice": None}, best, None)
    assert decision["objective"] == "maximize ndcg subject to cost_usd < 0.01"
    assert decision["combination"] == {"retrieve": "bm25"}
    nothing = decide({**MATRIX, "choice": None}, {**best, "subject_to": "cost_usd < 0"}, None)
    assert (nothing["combination"], nothing["basis"]) == (None, None)
    assert str(nothing["because"]).startswith("no combination is known to have cost_usd < 0")


def test_a_statistic_is_of_the_metric_even_if_another_metric_is_called_so() -> None:
    bm25 = row("bm25", 0.2, 0.001, 0.1)
    figures = bm25["metrics"]["ndcg"]
    bm25["metrics"] |= {"ndcg.low": {**figures, "mean": 0.7, "common_mean": 0.7}}
    matrix = documents.whole_matrix({**MATRIX, "rows": [bm25, *MATRIX["rows"][1:]]})
    matrix["metrics"]["ndcg.low"], matrix["best"]["ndcg.low"] = matrix["metrics"]["ndcg"], matrix["best"]["ndcg"]
    assert row_figure(matrix, bm25, Name(("ndcg", "low"))) == pytest.approx(0.1)
    assert row_figure(matrix, bm25, Name(("ndcg.low", "mean"))) == 0.7
    assert row_figure(matrix, bm25, Name(("ndcg.low",))) == 0.7


@pytest.mark.parametrize(("costs", "is_cheapest"), [((0.0, 0.0), None), ((0.0, 0.02), True), ((None, 0.02), None)])
def test_none_is_the_cheapest_of_ties_where_nothing_costs_anything(
    costs: tuple[float | None, float | None], is_cheapest: bool | None
) -> None:
    rows = [
        within(name, 0.3, cost, True, cost_per_success_usd=cost)
        for name, cost in zip(("bm25", "dense"), costs, strict=True)
    ]
    decision = decide({**MATRIX, "rows": rows, "choice": None}, {"maximize": "ndcg"}, 0.01)
    assert decision["basis"] == "within"
    assert decision["is_cheapest"] is is_cheapest
