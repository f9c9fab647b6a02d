"""Reasons for scores: those that evaluators return, and those of built-in evaluators for lower scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb import Score
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import EvaluationTask, Evaluator, evaluate, evaluator
from wtb.core.scoring import measure
from wtb.core.scoring.scores import MOST_REASON
from wtb.core.serialization.codec import encode
from wtb.core.tree.checkpoints import Totals
from wtb.core.values import Value
from wtb.planning.sweep_spec import read_evaluators

CALLER: Any = type(
    "Caller", (), {"own_process": True, "judgements": None, "call": lambda self, fn, *args, timeout: fn(*args)}
)()
A = {"field": "a"}


def scored(written: Any, answer: object, expected: object = None, fn: Any = None) -> dict[str, measure.Score]:
    (ref,) = read_evaluators([written])
    scorer: Evaluator = make_evaluator(ref.name, ref.options, str, fn)
    task = EvaluationTask("case", (), {}, encode(expected), {"a": Value.of(answer)}, (), Totals())
    return {score.metric: score for score in evaluate(task, [scorer], CALLER)}


@pytest.mark.parametrize(
    ("written", "answer", "expected", "reason"),
    [
        ({"exact_match": A}, "London", "Paris", "a is 'London'; expected 'Paris'"),
        ({"contains": A}, "London", ["Lon", "Paris", "Rome"], "'Paris', 'Rome' is not in a"),
        ({"contains": {**A, "text": "Paris"}}, "London", None, sentence("{} is not in {}", "'Paris'", "a")),
        ({"contains_any": {**A, "text": ["x", "y"]}}, "London", None, sentence("none of {} is in {}", "'x', 'y'", "a")),
        ({"regex": {**A, "pattern": "^P"}}, "London", None, sentence("the pattern {} is not found in {}", "'^P'", "a")),
        ({"json_schema": {**A, "schema": {"type": "object"}}}, "{", None, sentence("{} is no JSON: ", "a")),
        (
            {"json_schema": {**A, "schema": {"type": "object"}}},
            "[1]",
            None,
            sentence("{} does not fit the schema: it is {}", "a", "[1]"),
        ),
        ({"numeric_close": A}, 3, 4, "a is 3; expected 4"),
        (
            {"not": [{"contains": {**A, "text": "Lon"}}]},
            "London",
            None,
            sentence("{} passes, and must not", "contains"),
        ),
        (
            {"all_of": [{"contains": {**A, "text": "Lon"}}, {"any_of": [{"regex": {**A, "pattern": "P"}}]}]},
            "London",
            None,
            "any_of: regex: " + sentence("the pattern {} is not found in {}", "'P'", "a"),
        ),
        (
            {"weighted_mean": [{"contains": {**A, "text": "L"}}, {"contains": {**A, "text": "P"}}]},
            "London",
            None,
            "contains" + sentence("{} is not in {}", ": 'P'", "a"),
        ),
    ],
)
def test_a_built_in_evaluator_says_why_a_score_is_not_the_best(
    written: Mapping[str, Any], answer: object, expected: object, reason: str
) -> None:
    (score,) = scored(written, answer, expected).values()
    assert score.value is not None
    assert score.value < 1
    assert score.error is None
    assert (score.reason or "").startswith(reason)


@pytest.mark.parametrize(
    "written", [{"exact_match": A}, {"contains": A}, {"all_of": [{"contains": A}, {"exact_match": A}]}]
)
def test_the_best_score_needs_no_reason(written: Mapping[str, Any]) -> None:
    (score,) = scored(written, "Paris", "Paris").values()
    assert (score.value, score.reason) == (1.0, None)


def test_long_values_are_cut_in_reasons() -> None:
    (score,) = scored({"exact_match": A}, "x" * 10_000, "y" * 10_000).values()
    assert len(score.reason or "") < 300


def test_functions_return_scores_with_reasons_alone_or_by_key() -> None:
    @evaluator(scale=(0, 1))
    def own(case: Any, result: Any) -> Any:
        return {"": Score(True), "tone": Score(0.5, "  rude  "), "length": 1, "long": Score(1, "x" * 9_000)}

    scores = scored("m:own", "x", fn=own)
    assert {metric: score.value for metric, score in scores.items()} == {
        "own": 1,
        "own.tone": 0.5,
        "own.length": 1,
        "own.long": 1,
    }
    assert (scores["own"].reason, scores["own.tone"].reason, scores["own.length"].reason) == (None, "rude", None)
    assert 4_000 < len(scores["own.long"].reason or "") <= MOST_REASON


@pytest.mark.parametrize(
    ("points", "error"),
    [
        ("good", "returned str"),
        (float("nan"), sentence("must be finite")),
        (7, sentence("outside the declared scale")),
        (None, "NoneType"),
    ],
)
def test_a_score_that_is_none_fails_with_or_without_a_reason(points: Any, error: str) -> None:
    @evaluator(scale=(0, 1))
    def own(case: Any, result: Any) -> Any:
        return Score(points, "because")

    score = scored("m:own", "x", fn=own)["own"]
    assert score.value is None
    assert error in (score.error or "")


def test_a_reason_that_is_no_text_is_written_as_one() -> None:
    def own(case: Any, result: Any) -> Any:
        return Score(1, {"why": "x"})  # type: ignore[arg-type]

    assert scored("m:own", "x", fn=own)["own"].reason == "{'why': 'x'}"
