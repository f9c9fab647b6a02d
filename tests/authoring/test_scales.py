"""Scales: declared by evaluators, invalid, and with scores outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import EvaluationTask, evaluate, evaluator
from wtb.core.errors import InputError
from wtb.core.scoring.measure import Score
from wtb.core.tree.checkpoints import Totals
from wtb.planning.sweep_spec import parse_spec


class CallerStub:
    """The part of a process for user code that an evaluator needs."""

    own_process = True
    judgements = None

    def call(self, fn: Callable[..., Any], *args: Any, timeout: float | None, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)


def scores(fn: Callable[..., Any], **options: Any) -> list[Score]:
    """The scores that a function returns for one cell, with the options of a sweep file."""
    task = EvaluationTask("case", (), {}, None, {}, (), Totals())
    surroundings: Any = CallerStub()
    return evaluate(task, [make_evaluator("m:fn", options, lambda path: fn)], surroundings)


def ends(fn: Callable[..., Any], **options: Any) -> list[tuple[float | None, float | None]]:
    return [(score.measure.low, score.measure.high) for score in scores(fn, **options)]


def declaring(scale: Any, points: Any = 0.5) -> Callable[..., Any]:
    @evaluator(scale=scale)
    def grade(case: Any, result: Any) -> Any:
        return points

    return grade


def test_a_scale_is_declared_for_all_scores_by_key_or_in_the_sweep_file() -> None:
    assert ends(declaring((0, 10))) == [(0.0, 10.0)]
    assert ends(declaring({"a": (0, 10)}, {"a": 1, "b": 2})) == [(0.0, 10.0), (None, None)]
    assert ends(declaring(None), scale=[0, 5]) == [(0.0, 5.0)]
    assert ends(declaring((0, 10)), scale=[0, 5]) == [(0.0, 5.0)], "the sweep file has the last word"
    assert ends(declaring(None)) == [(None, None)]


def test_pass_and_fail_have_a_scale_from_0_to_1() -> None:
    def passed(case: Any, result: Any) -> bool:
        return True

    assert ends(passed) == [(0.0, 1.0)]
    for name, options in (("exact_match", {"field": "a"}), ("json_schema", {"field": "a", "schema": {}})):
        assert make_evaluator(name, options, lambda path: None).scale == (0.0, 1.0)
    for name in ("latency", "cost", "tokens", "node_runs"):
        assert make_evaluator(name, {}, lambda path: None).scale is None


def test_an_option_of_the_evaluators_own_that_is_named_scale_stays_its_own() -> None:
    def scaled(case: Any, result: Any, *, scale: float = 1.0) -> float:
        return scale * 2

    (score,) = scores(scaled, scale=3.0)
    assert (score.value, score.measure.low) == (6.0, None)


NO_SCALES = [[1, 0], [1, 1], [0], [0, 1, 2], [0, float("inf")], [float("nan"), 1], [0, 10**400]]
NO_SCALES += [["0", "1"], [False, True], "01"]


@pytest.mark.parametrize("scale", NO_SCALES)
def test_what_is_no_scale_is_refused(scale: Any) -> None:
    expected = "expected two finite numbers, the lower one first, such as \\[0, 1\\]"
    with pytest.raises(InputError, match=f"evaluator 'm:fn': scale is .*; {expected}"):
        scores(declaring(scale))
    with pytest.raises(InputError, match=expected):
        scores(declaring(None), scale=scale)
    with pytest.raises(InputError, match=f"the scale of 'key' is .*; {expected}"):
        scores(declaring({"key": scale}))


def test_built_in_evaluators_have_the_scale_that_they_have() -> None:
    for name, options in (("exact_match", {"field": "a"}), ("latency", {})):
        with pytest.raises(InputError, match=f"evaluator '{name}' takes no option 'scale'"):
            make_evaluator(name, {**options, "scale": [0, 2]}, lambda path: None)


@pytest.mark.parametrize(("points", "stored"), [(0, 0.0), (1, 1.0), (1 + 1e-12, 1.0), (-1e-12, 0.0), (0.3, 0.3)])
def test_a_score_on_its_scale_is_kept_and_rounding_is_forgiven(points: float, stored: float) -> None:
    (score,) = scores(declaring((0, 1), points))
    assert (score.value, score.error) == (stored, None)


@pytest.mark.parametrize("points", [-0.01, 1.01, 75])
def test_a_score_outside_its_scale_is_an_error_of_that_score(points: float) -> None:
    outside, other = scores(declaring({"a": (0, 1)}, {"a": points, "b": points}))
    assert (outside.value, outside.error) == (
        None,
        f"returned {points:g}; outside the declared scale from 0 to 1",
    )
    assert (other.value, other.error) == (points, None)


def test_a_scale_in_a_stored_sweep_is_read_back() -> None:
    document = {"workflow": "a:b", "cases": "c.jsonl", "vary": {"n": "all"}, "evaluate": [{"m:fn": {"scale": [0, 5]}}]}
    stored = parse_spec(document).model_dump(mode="json")
    assert parse_spec(stored).evaluate[0].options == {"scale": [0, 5]}
