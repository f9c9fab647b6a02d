"""Evaluators of evaluators: `not`, `all_of`, `any_of`, weighted means, and thresholds of any score."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import (
    CellResult,
    EvaluationTask,
    Evaluator,
    ScoredCase,
    evaluate,
    evaluator,
)
from wtb.core.errors import InputError
from wtb.core.scoring.scores import LEFT_OUT
from wtb.core.tree.checkpoints import Totals
from wtb.planning.sweep_spec import read_evaluators


def evaluator_of(written: Any, fn: Any = None) -> Evaluator:
    """Build the evaluator from its form in a sweep file."""
    (ref,) = read_evaluators([written])
    return make_evaluator(ref.name, ref.options, str, fn)


def score(written: Any, answer: str = "it is blue", expected: Any = "blue", **took: Any) -> float:
    return evaluator_of(written).score_of(ScoredCase("case", {}, expected), CellResult({"a": answer}, **took))


EXACT: Any = {"exact_match": {"field": "a"}}
BLUE: Any = {"contains": {"field": "a", "text": "blue"}}
RED: Any = {"contains": {"field": "a", "text": "red"}}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"not": RED}, 1),
        ({"not": BLUE}, 0),
        ({"not": [BLUE]}, 0),
        ({"not": {"of": BLUE}}, 0),
        ({"all_of": [BLUE, RED]}, 0),
        ({"all_of": [BLUE, {"not": RED}]}, 1),
        ({"any_of": [RED, BLUE]}, 1),
        ({"any_of": [RED, {"all_of": [RED, BLUE]}]}, 0),
        ({"weighted_mean": [RED, BLUE]}, 0.5),
        ({"weighted_mean": [RED, {"contains": {"field": "a", "text": "blue", "weight": 3}}]}, 0.75),
        ({"weighted_mean": {"of": [RED, BLUE], "at_least": 0.5}}, 1),
        ({"edit_similarity": {"field": "a", "at_least": 0.9}}, 0),
        ({"latency": {"at_most": 2}}, 1),
        ({"all_of": [BLUE, {"latency": {"at_most": 1}}]}, 0),
        ({"cost": {"at_least": 0.01, "at_most": 0.02}}, 1),
    ],
)
def test_evaluators_are_combined_as_they_are_written(written: Any, expected: float) -> None:
    assert score(written, duration_s=1.5, cost=0.02) == expected


def test_what_has_a_threshold_passes_or_fails_whatever_its_score_was() -> None:
    quick = evaluator_of({"latency": {"at_most": 2, "name": "quick"}})
    assert (quick.name, quick.better, quick.scale, quick.compare) == ("quick", "higher", (0.0, 1.0), "mean")
    assert quick.on_failure is None, "a cell that fails counts as one that does not pass"
    assert evaluator_of({"latency": {"at_most": 2, "on_failure": LEFT_OUT}}).on_failure == LEFT_OUT


def test_a_threshold_holds_for_scores_of_functions_of_your_own() -> None:
    @evaluator(better="lower", scale=(0, 10))
    def errors(case: Any, result: Any) -> Any:
        return {"a": 3, "b": 7}

    surroundings: Any = type(
        "Here", (), {"own_process": True, "judgements": None, "call": lambda self, fn, *args, timeout: fn(*args)}
    )()
    task = EvaluationTask("case", (), {}, None, {}, (), Totals())
    scores = evaluate(task, [evaluator_of({"m:errors": {"at_most": 5}}, errors)], surroundings)
    assert [(figure.metric, figure.value, figure.measure.better) for figure in scores] == [
        ("errors.a", 1.0, "higher"),
        ("errors.b", 0.0, "higher"),
    ]


def test_names_say_what_is_scored_and_can_be_given() -> None:
    assert evaluator_of({"not": BLUE}).name == "not_contains", "'not' is a word of conditions"
    assert evaluator_of({"all_of": {"of": [BLUE], "name": "polite"}}).name == "polite"
    assert evaluator_of({"contains": {"field": "a", "name": "colour"}}).name == "colour"

    def own(case: Any, result: Any, *, name: str) -> float:
        return len(name)

    assert evaluator_of({"m:own": {"name": "any. text"}}, own).name == "own", (
        "an option of the function's own stays its own"
    )


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"all_of": []}, "'of' is an empty list"),
        ({"all_of": None}, "'of' is nothing"),
        ({"not": {}}, "'of' is an empty mapping"),
        ({"not": [BLUE, RED]}, sentence("expected built-in evaluators")),
        ({"not": {"of": BLUE, "field": "a"}}, sentence("takes no option {} beside 'of'", "'field'")),
        ({"all_of": [5]}, "a part is 5"),
        ({"all_of": [{"contains": {}, "regex": {}}]}, sentence("a part is {}", "a mapping")),
        ({"all_of": [{"rouge": {"field": "a"}}]}, sentence("{} gives a score, neither pass nor fail", "'rouge'")),
        ({"any_of": ["containz"]}, sentence("did you mean '{}'", "contains")),
        ({"any_of": ["m:own"]}, sentence("functions of your own are not combined")),
        ({"any_of": ["contains"]}, "evaluator 'any_of': evaluator 'contains' needs the option 'field'"),
        ({"all_of": [{"contains": {"field": "a", "timeout": 5}}]}, sentence("expected it of {} itself", "'all_of'")),
        ({"weighted_mean": ["latency"]}, sentence("{} has no scale", "'latency'")),
        ({"weighted_mean": [{"contains": {"field": "a", "weight": 0}}]}, "'weight' is 0"),
        ({"weighted_mean": [{"contains": {"field": "a", "weight": "much"}}]}, sentence("'weight' is {}", "'much'")),
        ({"all_of": [{"contains": {"field": "a", "weight": 2}}]}, sentence("takes no option {}", "'weight'")),
        ({"cost": {"at_most": "cheap"}}, sentence("{} is {}; expected a finite number", "'at_most'", "'cheap'")),
        ({"cost": {"at_most": True}}, sentence("'at_most' {}", "is True")),
        ({"cost": {"at_least": 2, "at_most": 1}}, sentence("expected the lower end first")),
        ({"cost": {"at_most": 1, "scale": [0, 1]}}, sentence("both 'scale' and {}", "'at_most'")),
        ({"cost": {"name": "per case"}}, sentence("expected letters, digits and underscores")),
        ({"cost": {"on_failure": 0}}, sentence("takes no option {}", "'on_failure'")),
    ],
)
def test_what_cannot_be_combined_is_refused_before_anything_runs(written: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        evaluator_of(written)


def test_evaluators_in_evaluators_end_somewhere() -> None:
    deep = BLUE
    for _ in range(30):
        deep = {"not": [deep]}
    with pytest.raises(InputError, match=sentence("more than {} deep", 20)):
        evaluator_of(deep)


ASSERTED: Any = {"assert": [BLUE, {"contains": {"field": "a", "text": "red", "weight": 3}}], "a": "it is blue"}


def test_a_case_asserts_for_itself() -> None:
    assert score("assertions", expected=ASSERTED) == 0.25
    assert score({"assertions": {"at_least": 0.2}}, expected=ASSERTED) == 1
    assert score("assertions", expected={"assert": [EXACT], "a": "it is blue"}) == 1
    assert evaluator_of("assertions").lacks_expected("blue"), "a case without any has no score"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ([{"rogue": {"field": "a"}}], sentence("did you mean '{}'", "rouge")),
        ([{"contains": {}}], sentence("needs the option {}", "'field'")),
        ([{"regex": {"field": "a", "pattern": "("}}], sentence("not a regular expression")),
        (["assertions"], sentence("{} is no built-in evaluator", "'assertions'")),
        ([5], "a part is 5"),
        (["latency"], sentence("no scale from 0 to 1")),
    ],
)
def test_assertions_that_can_give_no_score_are_told_of_the_case(written: Any, words: str) -> None:
    problem = evaluator_of("assertions").problem({"assert": written})
    assert problem is not None
    assert words in problem
    assert evaluator_of("assertions").problem("blue") is None


def test_assertions_that_are_written_alike_are_read_once() -> None:
    asserting = evaluator_of("assertions")
    read = asserting.fn.keywords["read"]  # type: ignore[attr-defined]
    assert read([BLUE]) is read([dict(BLUE)])
    assert read([BLUE]) is not read([RED])
    with pytest.raises(InputError):
        read([])
    for number in range(2_000):
        read([{"contains": {"field": "a", "text": str(number)}}])
    assert read([BLUE]) is read([BLUE])


def test_assertions_take_no_parts_of_the_sweep() -> None:
    with pytest.raises(InputError, match=sentence("takes no option {}", "'of'")):
        evaluator_of({"assertions": [BLUE]})
