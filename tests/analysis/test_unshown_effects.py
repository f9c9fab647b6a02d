"""Effects are not claimed if missing cells, or losses too rare to show, could explain them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.support.prose import sentence
from wtb.analysis.matrix.attribution import attributed
from wtb.analysis.statistics import Floats
from wtb.analysis.statistics.claims import MissingCells

SQUARE = [{"retrieve": str(a), "answer": str(b)} for a, b in itertools.product(range(3), repeat=2)]
FIRST = np.array([row["answer"] == "0" for row in SQUARE])


def attribution(scores: Floats, choices: list[dict[str, str]] | None = None, **options: Any) -> Any:
    return attributed(scores, choices or SQUARE, "right", seed=1, **options)


def answer_of(document: Any) -> Any:
    return next(term for term in document["nodes"] if term["node"] == "answer")


def passing(rate: float, cases: int, seed: int) -> Floats:
    return np.asarray(np.random.default_rng(seed).random((9, cases)) < rate, dtype=np.float64)


def test_a_variant_that_fails_where_it_is_wrong_has_no_effect_that_is_claimed() -> None:
    scores = passing(0.7, 300, 0)
    scores[FIRST] = np.where(scores[FIRST] == 0, np.nan, 1.0)
    counted = attribution(scores)
    assert answer_of(counted)["p_adjusted"] < 0.05
    document = attribution(scores, missing=MissingCells.of(scores), ends=(0.0, 1.0))
    assert answer_of(document)["p_adjusted"] >= 0.05
    lost = int(np.isnan(scores).sum())
    assert (
        sentence("The effect of {} by {} {}, and is not claimed.", "answer", "right", f"hangs on {lost} missing cells")
        in document["sentences"]
    )
    assert not any(sentence("{} no difference", "makes") in line and "answer" in line for line in document["sentences"])
    for level in answer_of(document)["variants"]:
        assert level["ci"][0] <= 0 <= level["ci"][1]


def test_an_effect_is_claimed_if_all_variants_fail_alike() -> None:
    rng = np.random.default_rng(4)
    scores = np.asarray(rng.random((9, 300)) < np.where(FIRST, 0.9, 0.6)[:, None], dtype=np.float64)
    scores[rng.random(scores.shape) < 0.05] = np.nan
    document = attribution(scores, missing=MissingCells.of(scores), ends=(0.0, 1.0))
    assert answer_of(document)["p_adjusted"] < 0.05


def test_where_lower_is_better_a_variant_that_fails_where_it_is_dear_has_no_effect_that_is_claimed() -> None:
    scores = passing(0.3, 300, 0)
    scores[FIRST] = np.where(scores[FIRST] == 1, np.nan, 0.0)
    options: dict[str, Any] = {"missing": MissingCells.of(scores), "ends": (0.0, 1.0)}
    assert answer_of(attribution(scores, **options, better="lower"))["p_adjusted"] >= 0.05
    assert answer_of(attribution(scores, **options, better="higher"))["p_adjusted"] < 0.05


def test_a_few_cells_that_are_missing_at_random_cost_nothing() -> None:
    rng = np.random.default_rng(4)
    scores = np.asarray(rng.random((9, 60)) < np.where(FIRST, 0.8, 0.6)[:, None], dtype=np.float64)
    scores[0, 3] = scores[1, 20] = scores[5, 9] = np.nan
    plain = attribution(scores, ends=(0.0, 1.0))
    assert attribution(scores, missing=MissingCells.of(scores), ends=(0.0, 1.0)) == plain


def test_a_level_that_looks_worse_and_fails_more_often_is_claimed() -> None:
    rng = np.random.default_rng(4)
    scores = np.asarray(rng.random((9, 300)) < np.where(FIRST, 0.5, 0.7)[:, None], dtype=np.float64)
    scores[FIRST] = np.where(rng.random((3, 300)) < 0.2, np.nan, scores[FIRST])
    document = attribution(scores, missing=MissingCells.of(scores), ends=(0.0, 1.0))
    assert answer_of(document)["p_adjusted"] < 0.05


def test_a_few_failures_that_chance_put_into_two_of_three_variants_show_nothing() -> None:
    """The first variant has none of 8 failures: with three variants, one of them has none in 12% of sweeps."""
    scores = np.ones((9, 200))
    other_rows = np.flatnonzero(~FIRST)
    for case in range(8):
        scores[other_rows[case % 6], 25 * case] = 0
    assert all(term["p_adjusted"] >= 0.05 for term in attribution(scores)["nodes"])


def test_small_gains_that_a_rare_loss_could_cancel_are_not_claimed() -> None:
    scores = np.tile(np.random.default_rng(0).random(50) / 2, (9, 1))
    scores[FIRST] += 0.01
    assert answer_of(attribution(scores + 1e-4 * np.random.default_rng(1).normal(size=scores.shape)))["p"] < 0.01
    noisy = scores + 1e-4 * np.random.default_rng(1).normal(size=scores.shape)
    document = attribution(noisy, ends=(-1.0, 2.0))
    assert answer_of(document)["p_adjusted"] == 1


def test_single_changes_survive_missing_cells_or_are_not_claimed() -> None:
    corner = [{"a": "x", "b": "x"}, {"a": "y", "b": "x"}, {"a": "x", "b": "y"}]
    scores = passing(0.6, 300, 6)[:3]
    scores[1] = np.where(scores[1] == 0, np.nan, 1.0)
    (change, _) = attribution(scores, corner)["simple"]
    assert change["p_adjusted"] < 0.05
    (change, _) = attribution(scores, corner, missing=MissingCells.of(scores), ends=(0.0, 1.0))["simple"]
    assert change["p_adjusted"] >= 0.05
