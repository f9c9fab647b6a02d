"""Evaluators that are tried on one output: built-in ones give the score of a sweep, and no code of users runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.core.documents.workflows import EvaluatorPreviewDocument
from wtb.core.errors import InputError
from wtb.operations.context import Context
from wtb.operations.running import previews
from wtb.operations.running.previews import preview_evaluator
from wtb.store.database import Database

CONTAINS = {"contains": {"field": "answer"}}


@pytest.fixture
def context() -> Context:
    return Context(Database("sqlite:///:memory:"))


def values(preview: EvaluatorPreviewDocument) -> dict[str, float | None]:
    assert preview["runs"] == "here"
    return {score["metric"]: score["value"] for score in preview["scores"]}


def test_a_built_in_evaluator_gives_the_score_that_a_cell_would_have(context: Context) -> None:
    assert values(preview_evaluator(context, CONTAINS, {"answer": "It is 42."}, expected="42")) == {"contains": 1}
    assert values(preview_evaluator(context, CONTAINS, {"answer": "No."}, expected="42")) == {"contains": 0}
    both: Any = {"all_of": [CONTAINS, {"regex": {"field": "answer", "pattern": "^It"}}]}
    assert values(preview_evaluator(context, both, {"answer": "It is 42."}, expected="42"))["all_of"] == 1
    assert preview_evaluator(context, CONTAINS, {"answer": "x"})["needs_expected"]


@pytest.mark.parametrize(
    ("evaluator", "reason"),
    [
        ("mine:score", "code of users"),
        ({"mine:score": {"word": "x"}}, "code of users"),
        ({"judge": {"criteria": "is polite"}}, "a model"),
        ({"embedding_similarity": {"field": "answer"}}, "a model"),
    ],
)
def test_code_of_users_and_models_are_left_to_workers(
    context: Context, evaluator: Any, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('it was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    preview = preview_evaluator(context, evaluator, {"answer": "x"}, expected="x")
    assert (preview["runs"], preview["scores"]) == ("workers", [])
    assert reason in str(preview["reason"])
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("evaluator", "state", "expected", "problem"),
    [
        ("containz", {}, None, sentence("did you mean '{}'?", "contains")),
        ({"contains": {"feild": "a"}}, {}, None, sentence("takes no option {}", "'feild'")),
        ("contains", {}, None, sentence("needs the option {}", "'field'")),
        (CONTAINS, {"reply": "x"}, "x", sentence("has no key {}", "'answer'")),
        ({"regex": {"field": "answer"}}, {"answer": "x"}, "(", sentence("not a regular expression")),
        (
            {"all_of": [CONTAINS, "mine:score"]},
            {"answer": "x"},
            "x",
            sentence("functions of your own are not combined"),
        ),
        (CONTAINS, {"answer": "x" * 100_001}, "x", sentence("expected at most {}", "100,000")),
    ],
)
def test_what_cannot_score_is_refused_in_words(
    context: Context, evaluator: Any, state: dict[str, Any], expected: Any, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        preview_evaluator(context, evaluator, state, expected=expected)
    assert problem in str(caught.value)


def test_a_pattern_without_end_is_ended(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(previews, "SEARCH_S", 0.5)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"still searching at its deadline of 0\.5 s"):
        preview_evaluator(context, {"regex": {"field": "a", "pattern": "(a+)+$"}}, {"a": "a" * 60 + "b"})
    assert time.monotonic() - began < 30
