"""Attribution finds main effects and interactions, and claims none that the design cannot show."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tests.support.prose import sentence
from wtb.analysis.matrix.attribution import attributed
from wtb.analysis.statistics import Floats

FULL = [
    {"retrieve": a, "rank": b, "answer": c}
    for a, b, c in itertools.product(("bm25", "dense", "both"), ("off", "on"), ("short", "long"))
]
RETRIEVE = {"bm25": -0.1, "dense": -0.1, "both": 0.2}


def scores(choices: list[dict[str, str]], cases: int, together: float = 0.0, noise: float = 0.05) -> Floats:
    """Scores that depend on `retrieve` alone, plus an interaction of `rank` with `dense` if `together` is not 0."""
    rng = np.random.default_rng(7)
    both = [row["rank"] == "on" and row["retrieve"] == "dense" for row in choices]
    rows = [RETRIEVE[row["retrieve"]] + together * pair for row, pair in zip(choices, both, strict=True)]
    hard = rng.normal(size=cases)
    return np.array(rows)[:, None] + hard + noise * rng.normal(size=(len(rows), cases))


def find_node(document: dict[str, Any], node: str) -> dict[str, Any]:
    return next(row for row in document["nodes"] if row["node"] == node)


def test_a_main_effect_is_the_mean_of_a_variant_less_that_of_all() -> None:
    table = scores(FULL, 20)
    document = attributed(table, FULL, "ndcg", seed=0)
    means = table.mean(axis=1)
    for node in document["nodes"]:
        for variant in node["variants"]:
            rows = [i for i, row in enumerate(FULL) if row[node["node"]] == variant["variant"]]
            assert variant["effect"] == pytest.approx(means[rows].mean() - means.mean())
            assert variant["ci"][0] < variant["effect"] < variant["ci"][1]
    shares = [term["share"] for term in document["nodes"] + document["interactions"]]
    assert sum(shares) + document["unexplained"] == pytest.approx(1.0)
    assert (document["cases"], document["missing"], document["because"]) == (20, 0, None)


def test_what_makes_the_difference_comes_first_and_the_rest_makes_none() -> None:
    document = attributed(scores(FULL, 37), FULL, "ndcg", seed=0)
    assert document["nodes"][0]["node"] == "retrieve"
    assert document["nodes"][0]["p_adjusted"] < 0.05
    assert document["nodes"][0]["share"] > 0.9
    first, second, third = document["sentences"]
    assert first.startswith("retrieve explains most of the spread by ndcg (>99%): ")
    assert "both +0.198" in first
    assert second in (
        sentence("{} {} no difference by {} that {} can show.", "answer", "and rank make", "ndcg", "37 cases"),
        sentence("{} {} no difference by {} that {} can show.", "rank", "and answer make", "ndcg", "37 cases"),
    )
    assert third == sentence("No two {} act together by {} in a way that {} can show.", "nodes", "ndcg", "37 cases")


def test_nodes_that_act_together_are_named_with_the_variants_that_do() -> None:
    document = attributed(scores(FULL, 37, together=0.4), FULL, "ndcg", seed=0)
    strongest = document["interactions"][0]
    assert strongest["nodes"] == ["retrieve", "rank"]
    assert strongest["p_adjusted"] < 0.05
    assert strongest["strongest"]["variants"][0] == "dense"
    assert abs(strongest["strongest"]["effect"]) == pytest.approx(0.4 / 3, abs=0.03)
    assert any(line.startswith("retrieve and rank act together") for line in document["sentences"])


def test_what_comes_from_rounding_is_no_effect() -> None:
    document = attributed(scores(FULL, 30, noise=0.0), FULL, "ndcg", seed=0)
    assert [node["node"] for node in document["nodes"] if node["share"]] == ["retrieve"]
    rest = document["nodes"][1:] + document["interactions"]
    assert {(term["share"], term["p"]) for term in rest} == {(0.0, 1.0)}


def test_few_cases_are_tested_over_every_flip() -> None:
    choices = [{"a": "x"}, {"a": "y"}]
    differences = np.array([0.3, 0.1, -0.05, 0.4, 0.2, 0.25])
    document = attributed(np.stack([differences, np.zeros(6)]), choices, "m", seed=0)
    # With two variants the sum of squared effects is as extreme as the difference: the paired sign-flip test.
    signs = 1.0 - 2.0 * (np.arange(64)[:, None] >> np.arange(6) & 1)
    expected = (np.abs(signs @ differences) >= differences.sum() - 1e-9).mean()
    assert document["nodes"][0]["p"] == pytest.approx(expected)
    assert document["nodes"][0]["share"] == pytest.approx(1.0)


def test_nodes_that_always_change_together_are_not_told_apart() -> None:
    choices = [row for row in FULL if (row["rank"] == "on") == (row["answer"] == "long")]
    document = attributed(scores(choices, 20), choices, "ndcg", seed=0)
    assert [node["node"] for node in document["nodes"]] == ["retrieve"]
    assert document["because"] == sentence("cannot tell all: ") + sentence(
        "the combinations cannot separate the effects of {}", "rank and answer"
    )


def test_one_change_at_a_time_says_nothing_of_nodes_together() -> None:
    base = FULL[0]
    choices = [base, {**base, "retrieve": "both"}, {**base, "rank": "on"}, {**base, "answer": "long"}]
    document = attributed(scores(choices, 20), choices, "ndcg", seed=0)
    assert (document["nodes"], document["interactions"]) == ([], [])
    assert document["simple"][0]["effect"] == pytest.approx(0.3, abs=0.05)
    assert document["because"].startswith(
        "cannot tell all: there are too few combinations to estimate how retrieve x rank"
    )


def test_a_case_compares_the_combinations_that_it_has() -> None:
    table = scores(FULL, 40, noise=0.02)
    rng = np.random.default_rng(9)
    table[rng.random(table.shape) < 0.3] = math.nan
    table[:, 39] = math.nan
    document = attributed(table, FULL, "ndcg", seed=0)
    assert (document["cases"], document["missing"]) == (39, int(np.isnan(table[:, :39]).sum()))
    assert document["nodes"][0]["node"] == "retrieve"
    assert document["nodes"][0]["p_adjusted"] < 0.05
    middle = sum(RETRIEVE.values()) / 3
    for variant in find_node(document, "retrieve")["variants"]:
        assert variant["effect"] == pytest.approx(RETRIEVE[variant["variant"]] - middle, abs=0.02)
        assert variant["ci"][0] < RETRIEVE[variant["variant"]] - middle < variant["ci"][1]


def test_noise_is_not_explained_by_many_nodes_acting_together() -> None:
    document = attributed(np.random.default_rng(1).normal(size=(len(FULL), 30)), FULL, "ndcg", seed=0)
    assert document["unexplained"] > 0.1
    assert document["unexplained_p"] > 0.05
    assert not any(sentence("comes from neither") in line for line in document["sentences"])


def test_what_nodes_do_together_where_a_combination_was_left_out_is_not_taken_for_effects_of_each() -> None:
    choices = [{"a": a, "b": b} for a in "xyz" for b in "uvw" if (a, b) != ("x", "u")]
    crossed = {("x", "v"): -0.5, ("y", "u"): -0.5, ("y", "v"): 0.5}
    means = np.array([crossed.get((row["a"], row["b"]), 0.0) for row in choices])
    table = means[:, None] + 0.5 * np.random.default_rng(3).normal(size=(len(choices), 60))
    document = attributed(table, choices, "m", seed=0)
    assert all(node["p_adjusted"] > 0.05 for node in document["nodes"])
    assert document["interactions"][0]["p_adjusted"] < 0.05


def test_a_combination_without_any_score_is_left_out() -> None:
    table = scores(FULL, 20)
    table[11] = math.nan
    document = attributed(table, FULL, "ndcg", seed=0)
    assert document["cases"] == 20
    assert document["nodes"][0]["node"] == "retrieve"


NOTHING = [
    (np.full((2, 3), math.nan), "nothing is scored by m"),
    (np.array([[1.0, 2.0], [math.nan, math.nan]]), "only one combination is scored by m"),
    (np.array([[1.0, math.nan], [math.nan, 2.0]]), "no case has scores by m of several combinations"),
    (np.array([[1.0], [2.0]]), "one case has scores by m of several combinations"),
    (np.full((2, 9), 0.5), "all combinations have the same mean by m"),
    (np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]), "all combinations have the same mean by m"),
]


@pytest.mark.parametrize(("table", "reason"), NOTHING)
def test_what_cannot_be_told_is_said(table: Floats, reason: str) -> None:
    document = attributed(table, [{"a": "x"}, {"a": "y"}], "m", seed=0)
    assert document["because"] == f"cannot tell: {reason}"
    assert document["sentences"] == [f"Cannot tell: {reason}."]
    assert (document["nodes"], document["interactions"], document["unexplained"]) == ([], [], None)


def test_few_cases_say_that_they_are_few() -> None:
    document = attributed(scores(FULL, 4), FULL, "ndcg", seed=0)
    assert document["sentences"] == [
        sentence("{} are too few to show what makes a difference by {}, whatever they show.", "4 cases", "ndcg")
    ]


CORNER = [
    {"retrieve": retrieve, "answer": answer}
    for retrieve, answer in (("narrow", "default"), ("wide", "default"), ("narrow", "short"))
]


def test_two_nodes_with_an_excluded_pair_have_simple_effects_and_no_share() -> None:
    rng = np.random.default_rng(3)
    hard = rng.normal(size=60)
    means = np.array([0.0, 0.2, 0.0])
    document = attributed(means[:, None] + hard + 0.05 * rng.normal(size=(3, 60)), CORNER, "right", seed=0)
    assert all(node["share"] <= 1 for node in document["nodes"])
    assert "spread" not in " ".join(document["sentences"])
    wide, short = document["simple"]
    assert (wide["node"], wide["variant"], wide["over"]) == ("retrieve", "wide", "narrow")
    assert wide["beside"] == {"answer": "default"}
    assert wide["effect"] == pytest.approx(0.2, abs=0.03)
    assert wide["ci"][0] < wide["effect"] < wide["ci"][1]
    assert wide["p"] <= wide["p_adjusted"] < 0.05 <= short["p_adjusted"]
    assert document["sentences"][:2] == [
        f"With answer=default, retrieve=wide gains {wide['effect']:.3g} by right over narrow.",
        sentence("{} {} no difference by {} that {} can show.", "answer", "makes", "right", "60 cases"),
    ]


def test_single_changes_of_three_nodes_are_each_held_against_the_same_combination() -> None:
    base = {"a": "x", "b": "x", "c": "x"}
    choices = [base, {**base, "a": "y"}, {**base, "b": "y"}, {**base, "c": "y"}, {**base, "c": "z"}]
    rng = np.random.default_rng(4)
    scores = rng.normal(size=40) + np.array([0, 0, -0.5, 0, 0.4])[:, None] + 0.1 * rng.normal(size=(5, 40))
    document = attributed(scores, choices, "right", seed=0)
    changes = ["".join((row["node"], row["variant"], row["over"])) for row in document["simple"]]
    assert changes == ["ayx", "byx", "cyx", "czx"]
    first, second, *_ = document["sentences"]
    assert first.startswith("With a=x and c=x, b=y loses 0.")
    assert second.startswith("With a=x and b=x, c=z gains 0.")


def test_a_whole_crossing_has_shares_and_no_simple_effects() -> None:
    assert "simple" not in attributed(scores(FULL, 20), FULL, "ndcg", seed=0)
