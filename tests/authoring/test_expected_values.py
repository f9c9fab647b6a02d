"""A case without an expected value is neither right nor wrong: an evaluator that needs one gives it no score."""

from __future__ import annotations

from typing import Any

import pytest

from wtb.authoring.evaluation.built_in import BUILT_IN, COMBINING, MEASURED
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import Evaluator
from wtb.core.errors import InputError
from wtb.planning.sweep_spec import read_evaluators

FREE = {"json_schema", "tools_avoided", "tool_calls", "repeated_tool_calls", "nodes_visited", "no_secrets"}
FREE |= {"no_personal_data", *COMBINING, *(fn.__name__ for fn in MEASURED)}
NEEDING = sorted(BUILT_IN.keys() - FREE)
OPTIONS = {"class_f1": {"positive": "x"}, "class_precision": {"positive": "x"}, "class_recall": {"positive": "x"}}


def evaluator_of(name: str, **options: Any) -> Evaluator:
    options = {**OPTIONS.get(name, {}), **options}
    return make_evaluator(name, {"field": "a", **options}, str)


def written(text: Any) -> Evaluator:
    (ref,) = read_evaluators([text])
    return make_evaluator(ref.name, ref.options, str)


@pytest.mark.parametrize("expected", [None, {}, {"b": "x"}, {"a": None}, {"assert": ["latency"]}])
def test_every_built_in_evaluator_that_compares_needs_an_expected_value(expected: Any) -> None:
    assert [name for name in NEEDING if not evaluator_of(name).lacks_expected(expected)] == []


@pytest.mark.parametrize("blank", ["", "  ", "\n", {"a": " "}])
def test_a_blank_text_expects_nothing_but_of_exact_match(blank: Any) -> None:
    assert [name for name in NEEDING if not evaluator_of(name).lacks_expected(blank)] == ["exact_match"]


@pytest.mark.parametrize("empty", [[], {"a": []}])
def test_an_empty_list_is_expected_only_by_evaluators_that_compare_lists(empty: Any) -> None:
    comparing = [name for name in NEEDING if not evaluator_of(name).lacks_expected(empty)]
    assert comparing == ["exact_match", "json_equal"]
    assert evaluator_of("tools_called").lacks_expected(empty), "any calls would be right"
    assert not evaluator_of("tools_called", order="exact").lacks_expected(empty), "no call is right"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("contains", "x"),
        ("contains", {"a": ["", "x"]}),
        ("contains_any", ["", "x"]),
        ("numeric_close", 0),
        ("numeric_close", "0"),
        ("macro_f1", False),
        ("brier", 0),
        ("json_equal", {"a": {}}),
        ("ndcg", {"d1": 2, "d2": 0}),
        ("ndcg", {"a": {"d1": 2}}),
    ],
)
def test_an_expected_value_is_one_even_if_it_is_zero_or_false(name: str, expected: Any) -> None:
    assert not evaluator_of(name).lacks_expected(expected)


def test_blank_texts_of_a_list_are_no_right_answers() -> None:
    for name in ("contains", "contains_any", "edit_similarity"):
        assert _score(name, "no", ["", "yes"]) == _score(name, "no", ["yes"]) < 1


def _score(name: str, answer: str, expected: Any) -> float:
    from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase

    return evaluator_of(name).score_of(ScoredCase("case", {}, expected), CellResult({"a": answer}))


@pytest.mark.parametrize("expected", [{"d1": 0}, {"a": {"d1": 0}}, {"b": "x", "c": 3}])
def test_a_ranking_needs_a_relevant_id(expected: Any) -> None:
    assert evaluator_of("recall").lacks_expected(expected)


def test_an_option_replaces_the_expected_value() -> None:
    for name, option, setting in (
        ("contains", "text", "x"),
        ("contains_any", "text", ["x"]),
        ("regex", "pattern", "x"),
        ("tools_called", "tools", ["search"]),
    ):
        assert not evaluator_of(name, **{option: setting}).lacks_expected(None)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("contains", {"text": ""}),
        ("contains_any", {"text": ["x", " "]}),
        ("contains", {"text": []}),
        ("regex", {"pattern": ""}),
    ],
)
def test_an_option_by_which_every_answer_is_right_is_rejected(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="blank"):
        evaluator_of(name, **options)


WITHOUT: Any = {"contains": {"field": "a"}}
WITH: Any = {"contains": {"field": "a", "text": "x"}}


@pytest.mark.parametrize("combined", ["not", "all_of", "any_of", "weighted_mean"])
def test_a_combined_evaluator_lacks_what_any_of_its_parts_lacks(combined: str) -> None:
    parts = [WITHOUT] if combined == "not" else [WITH, WITHOUT]
    assert written({combined: parts}).lacks_expected(None)
    assert not written({combined: parts}).lacks_expected("x")
    assert not written({combined: [WITH]}).lacks_expected(None)


def test_assertions_of_a_case_lack_what_any_of_them_lacks() -> None:
    assertions = written("assertions")
    assert assertions.lacks_expected("x")
    assert assertions.lacks_expected({"assert": [WITH, WITHOUT]})
    assert not assertions.lacks_expected({"assert": [WITH, WITHOUT], "a": "x"})


def test_scorers_of_other_tools_that_compare_need_an_expected_value() -> None:
    from wtb.authoring.code.import_paths import load

    for path, needs in (
        ("autoevals:ExactMatch", True),
        ("autoevals:JSONDiff", True),
        ("autoevals:ValidJSON", False),
        ("sklearn.metrics:jaccard_score", True),
    ):
        assert make_evaluator(path, {"field": "a"}, load).lacks_expected(None) is needs
