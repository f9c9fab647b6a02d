"""Main effects and interactions are found where they are, and nothing is told that cannot be."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.effects.attribution import attributed
from wtb.analysis.statistics import Floats

FULL = [
    {"retrieve": a, "rank": b, "answer": c}
    for a, b, c in itertools.product(("bm25", "dense", "both"), ("off", "on"), ("short", "long"))
]
RETRIEVE = {"bm25": -0.1, "dense": -0.1, "both": 0.2}


def scores(choices: list[dict[str, str]], cases: int, together: float = 0.0, noise: float = 0.05) -> Floats:
    """Made of retrieve alone, and of rank with dense where `together`."""
    rng = np.random.default_rng(7)
    rows = [
        RETRIEVE[row["retrieve"]] + together * (row["rank"] == "on" and row["retrieve"] == "dense") for row in choices
    ]
    hard = rng.normal(size=cases)
    return np.array(rows)[:, None] + hard + noise * rng.normal(size=(len(rows), cases))


def told(found: dict[str, Any], node: str) -> dict[str, Any]:
    return next(one for one in found["nodes"] if one["node"] == node)


def test_a_main_effect_is_the_mean_of_a_variant_less_that_of_all() -> None:
    given = scores(FULL, 20)
    found = attributed(given, FULL, "ndcg", seed=0)
    means = given.mean(axis=1)
    for node in found["nodes"]:
        for one in node["variants"]:
            rows = [i for i, row in enumerate(FULL) if row[node["node"]] == one["variant"]]
            assert one["effect"] == pytest.approx(means[rows].mean() - means.mean())
            assert one["ci"][0] < one["effect"] < one["ci"][1]
    shares = [one["share"] for one in found["nodes"] + found["interactions"]]
    assert sum(shares) + found["unexplained"] == pytest.approx(1.0)
    assert (found["cases"], found["missing"], found["because"]) == (20, 0, None)


def test_what_makes_the_difference_comes_first_and_the_rest_makes_none() -> None:
    found = attributed(scores(FULL, 37), FULL, "ndcg", seed=0)
    assert found["nodes"][0]["node"] == "retrieve"
    assert found["nodes"][0]["p_adjusted"] < 0.05
    assert found["nodes"][0]["share"] > 0.9
    first, second, third = found["sentences"]
    assert first.startswith("retrieve explains most of the spread by ndcg (>99%): ")
    assert "both +0.198" in first
    assert second in (
        sentence("{} {} no difference by {} that {} can show.", "answer", "and rank make", "ndcg", "37 cases"),
        sentence("{} {} no difference by {} that {} can show.", "rank", "and answer make", "ndcg", "37 cases"),
    )
    assert third == sentence("No two {} act together by {} in a way that {} can show.", "nodes", "ndcg", "37 cases")


def test_nodes_that_act_together_are_named_with_the_variants_that_do() -> None:
    found = attributed(scores(FULL, 37, together=0.4), FULL, "ndcg", seed=0)
    strongest = found["interactions"][0]
    assert strongest["nodes"] == ["retrieve", "rank"]
    assert strongest["p_adjusted"] < 0.05
    assert strongest["strongest"]["variants"][0] == "dense"
    assert abs(strongest["strongest"]["effect"]) == pytest.approx(0.4 / 3, abs=0.03)
    assert any(said.startswith("retrieve and rank act together") for said in found["sentences"])


def test_what_comes_from_rounding_is_no_effect() -> None:
    found = attributed(scores(FULL, 30, noise=0.0), FULL, "ndcg", seed=0)
    assert [one["node"] for one in found["nodes"] if one["share"]] == ["retrieve"]
    others = found["nodes"][1:] + found["interactions"]
    assert {(one["share"], one["p"]) for one in others} == {(0.0, 1.0)}


def test_few_cases_are_tested_over_every_flip() -> None:
    choices = [{"a": "x"}, {"a": "y"}]
    differences = np.array([0.3, 0.1, -0.05, 0.4, 0.2, 0.25])
    found = attributed(np.stack([differences, np.zeros(6)]), choices, "m", seed=0)
    # With two variants the sum of squared effects is as extreme as the difference: the paired sign-flip test.
    signs = 1.0 - 2.0 * (np.arange(64)[:, None] >> np.arange(6) & 1)
    expected = (np.abs(signs @ differences) >= differences.sum() - 1e-9).mean()
    assert found["nodes"][0]["p"] == pytest.approx(expected)
    assert found["nodes"][0]["share"] == pytest.approx(1.0)


def test_nodes_that_always_change_together_are_not_told_apart() -> None:
    choices = [row for row in FULL if (row["rank"] == "on") == (row["answer"] == "long")]
    found = attributed(scores(choices, 20), choices, "ndcg", seed=0)
    assert [one["node"] for one in found["nodes"]] == ["retrieve"]
    assert found["because"] == sentence("cannot tell all: ") + sentence(
        "the combinations do not tell apart what comes from {}", "rank and answer"
    )


def test_one_change_at_a_time_says_nothing_of_nodes_together() -> None:
    base = FULL[0]
    choices = [base, {**base, "retrieve": "both"}, {**base, "rank": "on"}, {**base, "answer": "long"}]
    found = attributed(scores(choices, 20), choices, "ndcg", seed=0)
    assert (found["nodes"], found["interactions"]) == ([], [])
    assert found["simple"][0]["effect"] == pytest.approx(0.3, abs=0.05)
    assert found["because"].startswith("cannot tell all: there are too few combinations to tell how retrieve x rank")


def test_a_case_compares_the_combinations_that_it_has() -> None:
    given = scores(FULL, 40, noise=0.02)
    rng = np.random.default_rng(9)
    given[rng.random(given.shape) < 0.3] = math.nan
    given[:, 39] = math.nan
    found = attributed(given, FULL, "ndcg", seed=0)
    assert (found["cases"], found["missing"]) == (39, int(np.isnan(given[:, :39]).sum()))
    assert found["nodes"][0]["node"] == "retrieve"
    assert found["nodes"][0]["p_adjusted"] < 0.05
    middle = sum(RETRIEVE.values()) / 3
    for one in told(found, "retrieve")["variants"]:
        assert one["effect"] == pytest.approx(RETRIEVE[one["variant"]] - middle, abs=0.02)
        assert one["ci"][0] < RETRIEVE[one["variant"]] - middle < one["ci"][1]


def test_noise_is_not_explained_by_many_nodes_acting_together() -> None:
    found = attributed(np.random.default_rng(1).normal(size=(len(FULL), 30)), FULL, "ndcg", seed=0)
    assert found["unexplained"] > 0.1
    assert found["unexplained_p"] > 0.05
    assert not any(sentence("comes from neither") in said for said in found["sentences"])


def test_what_nodes_do_together_where_a_combination_was_left_out_is_not_taken_for_effects_of_each() -> None:
    choices = [{"a": a, "b": b} for a in "xyz" for b in "uvw" if (a, b) != ("x", "u")]
    crossed = {("x", "v"): -0.5, ("y", "u"): -0.5, ("y", "v"): 0.5}
    means = np.array([crossed.get((row["a"], row["b"]), 0.0) for row in choices])
    given = means[:, None] + 0.5 * np.random.default_rng(3).normal(size=(len(choices), 60))
    found = attributed(given, choices, "m", seed=0)
    assert all(node["p_adjusted"] > 0.05 for node in found["nodes"])
    assert found["interactions"][0]["p_adjusted"] < 0.05


def test_a_combination_without_any_score_is_left_out() -> None:
    given = scores(FULL, 20)
    given[11] = math.nan
    found = attributed(given, FULL, "ndcg", seed=0)
    assert found["cases"] == 20
    assert found["nodes"][0]["node"] == "retrieve"


NOTHING = [
    (np.full((2, 3), math.nan), "nothing is scored by m"),
    (np.array([[1.0, 2.0], [math.nan, math.nan]]), "only one combination is scored by m"),
    (np.array([[1.0, math.nan], [math.nan, 2.0]]), "no case has scores by m of several combinations"),
    (np.array([[1.0], [2.0]]), "one case has scores by m of several combinations"),
    (np.full((2, 9), 0.5), "all combinations have the same mean by m"),
    (np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), "all combinations have the same mean by m"),
]


@pytest.mark.parametrize(("given", "reason"), NOTHING)
def test_what_cannot_be_told_is_said(given: Floats, reason: str) -> None:
    found = attributed(given, [{"a": "x"}, {"a": "y"}], "m", seed=0)
    assert found["because"] == f"cannot tell: {reason}"
    assert found["sentences"] == [f"Cannot tell: {reason}."]
    assert (found["nodes"], found["interactions"], found["unexplained"]) == ([], [], None)


def test_few_cases_say_that_they_are_few() -> None:
    found = attributed(scores(FULL, 4), FULL, "ndcg", seed=0)
    assert found["sentences"] == [
        sentence("{} cannot tell what makes a difference by {}, whatever they show.", "4 cases", "ndcg")
    ]


CORNER = [
    {"retrieve": "narrow", "answer": "default"},
    {"retrieve": "wide", "answer": "default"},
    {"retrieve": "narrow", "answer": "short"},
]


def test_two_nodes_with_an_excluded_pair_have_simple_effects_and_no_share() -> None:
    rng = np.random.default_rng(3)
    hard = rng.normal(size=60)
    means = np.array([0.0, 0.2, 0.0])
    found = attributed(means[:, None] + hard + 0.05 * rng.normal(size=(3, 60)), CORNER, "right", seed=0)
    assert all(node["share"] <= 1 for node in found["nodes"])
    assert "spread" not in " ".join(found["sentences"])
    wide, short = found["simple"]
    assert (wide["node"], wide["variant"], wide["over"]) == ("retrieve", "wide", "narrow")
    assert wide["beside"] == {"answer": "default"}
    assert wide["effect"] == pytest.approx(0.2, abs=0.03)
    assert wide["ci"][0] < wide["effect"] < wide["ci"][1]
    assert wide["p"] <= wide["p_adjusted"] < 0.05 <= short["p_adjusted"]
    assert found["sentences"][:2] == [
        f"With answer=default, retrieve=wide gains {wide['effect']:.3g} by right over narrow.",
        sentence("{} {} no difference by {} that {} can show.", "answer", "makes", "right", "60 cases"),
    ]


def test_single_changes_of_three_nodes_are_each_held_against_the_same_combination() -> None:
    base = {"a": "x", "b": "x", "c": "x"}
    choices = [base, {**base, "a": "y"}, {**base, "b": "y"}, {**base, "c": "y"}, {**base, "c": "z"}]
    rng = np.random.default_rng(4)
    scores = rng.normal(size=40) + np.array([0, 0, -0.5, 0, 0.4])[:, None] + 0.1 * rng.normal(size=(5, 40))
    found = attributed(scores, choices, "right", seed=0)
    assert [(one["node"], one["variant"], one["over"]) for one in found["simple"]] == [
        ("a", "y", "x"),
        ("b", "y", "x"),
        ("c", "y", "x"),
        ("c", "z", "x"),
    ]
    first, second, *_ = found["sentences"]
    assert first.startswith("With a=x and c=x, b=y loses 0.")
    assert second.startswith("With a=x and b=x, c=z gains 0.")


def test_a_whole_crossing_has_shares_and_no_simple_effects() -> None:
    assert "simple" not in attributed(scores(FULL, 20), FULL, "ndcg", seed=0)
