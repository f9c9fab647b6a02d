"""Built-in evaluators agree with other implementations, and reject invalid input."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.prose import sentence
from wtb.authoring.evaluation.built_in import BUILT_IN
from wtb.authoring.evaluation.declarations import make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, ScoredCase
from wtb.core.errors import InputError

TEXTS = [
    ("the cat sat on the mat", "the cat was sitting on the mat"),
    ("police killed the gunman", "police kill the gunman"),
    ("the gunman kill police", "police kill the gunman"),
    ("It is 42.", "The answer is 42, of course."),
    ("nothing alike", "completely different words here"),
    ("short", "short"),
]


def score(name: str, answer: Any, expected: Any = None, **options: Any) -> Any:
    evaluator = make_evaluator(name, {"field": "a", **options}, str)
    return evaluator.fn(ScoredCase("case", {}, expected), CellResult({"a": answer}))


@pytest.mark.parametrize("variant", ["1", "2", "L"])
def test_rouge_is_what_the_implementation_of_google_research_gives(variant: str) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer([f"rouge{variant}"])
    for answer, expected in TEXTS:
        theirs = scorer.score(expected, answer)[f"rouge{variant}"]
        for figure, value in (("f1", theirs.fmeasure), ("precision", theirs.precision), ("recall", theirs.recall)):
            ours = score("rouge", answer, expected, variant=variant, figure=figure)
            assert ours == pytest.approx(value), (answer, expected, figure)


def test_rouge_l_has_the_values_of_the_paper_by_lin() -> None:
    assert score("rouge", "police kill the gunman", "police killed the gunman") == pytest.approx(3 / 4)
    assert score("rouge", "the gunman kill police", "police killed the gunman") == pytest.approx(2 / 4)


@pytest.mark.parametrize(("answer", "expected"), TEXTS[:3])
def test_bleu_and_chrf_are_what_nltk_gives(answer: str, expected: str) -> None:
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
    from nltk.translate.chrf_score import sentence_chrf

    # Method 3 of NLTK is the smoothing that sacrebleu has by default, exponential.
    theirs = sentence_bleu([expected.split()], answer.split(), smoothing_function=SmoothingFunction().method3)
    assert score("bleu", answer, expected) == pytest.approx(theirs)
    close = sentence_chrf(expected, answer, max_len=6, beta=2)  # which skips lengths that both texts lack
    assert score("chrf", answer, expected) == pytest.approx(close, abs=0.01)


def test_similarity_by_embeddings_is_the_cosine_and_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy
    import requests

    from wtb.authoring.evaluation import similarity

    monkeypatch.setattr(requests, "get", lambda *args, **options: pytest.fail("it calls a server"))
    lost, never, rain = "My parcel is lost", "The package did not arrive", "It rains today"
    first, other = similarity._model().embed([lost, never])
    theirs = first @ other / numpy.linalg.norm(first) / numpy.linalg.norm(other)
    assert score("embedding_similarity", never, lost) == pytest.approx(theirs, abs=1e-5)
    assert score("embedding_similarity", lost, lost) == pytest.approx(1, abs=1e-5)
    assert score("embedding_similarity", never, [rain, lost]) == score("embedding_similarity", never, lost)
    assert score("embedding_similarity", rain, lost) == 0
    assert score("embedding_similarity", "", lost) == 0


def test_a_package_that_has_all_messages_printed_is_kept_from_it() -> None:
    code = (
        "import logging; from wtb.authoring.evaluation.similarity import _model; _model(); "
        "root = logging.getLogger(); print(root.handlers, root.isEnabledFor(logging.INFO))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[] False\n", "")


def test_a_text_that_is_right_scores_1_however_short_it_is_and_the_best_reference_counts() -> None:
    for name in ("bleu", "chrf", "rouge", "edit_similarity"):
        assert score(name, "yes", "yes") == pytest.approx(1)
        assert score(name, "yes", ["no way", "yes"]) == pytest.approx(1), name
    assert score("edit_similarity", "kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert score("edit_similarity", "YES", "yes", ignore_case=True) == 1
    assert score("contains_any", "it is blue", ["red", "blue"])
    assert not score("contains_any", "it is blue", "ignored", text=["red", "green"])


def test_rankings_are_what_trec_eval_gives() -> None:
    import ir_measures
    from ir_measures import AP, RR, P, R, nDCG

    draw = random.Random(7)
    ids = [f"d{number}" for number in range(12)]
    for _ in range(40):
        ranking = draw.sample(ids, draw.randint(1, 12))
        grades = {document: draw.choice([0, 0, 1, 2, 3]) for document in ids} | {draw.choice(ids): 1}
        run = {"q": {document: -float(rank) for rank, document in enumerate(ranking)}}
        theirs = ir_measures.calc_aggregate([nDCG @ 5, AP, RR, R @ 3, P @ 5], {"q": grades}, run)
        assert score("ndcg", ranking, grades, k=5) == pytest.approx(theirs[nDCG @ 5])
        assert score("average_precision", ranking, grades) == pytest.approx(theirs[AP])
        assert score("reciprocal_rank", ranking, grades) == pytest.approx(theirs[RR])
        assert score("recall", ranking, grades, k=3) == pytest.approx(theirs[R @ 3])
        assert score("precision", ranking, grades, k=5) == pytest.approx(theirs[P @ 5])


def test_an_id_that_is_ranked_twice_counts_once() -> None:
    assert score("precision", ["a", "a", "b"], ["a", "b"], k=2) == 1
    assert score("ndcg", ["a", "a", "a"], ["a", "b"]) < 1


@pytest.mark.parametrize(
    ("answer", "expected", "equal"),
    [
        ('{"x": 1, "y": [1, 2]}', {"y": [1, 2], "x": 1.0}, True),
        ({"x": 1}, '{"x": 1}', True),
        ({"x": True}, {"x": 1}, False),
        ({"x": "1"}, {"x": 1}, False),
        ([2, 1], [1, 2], False),
        ("no JSON", {"x": 1}, False),
    ],
)
def test_json_is_equal_if_it_says_the_same(answer: Any, expected: Any, equal: bool) -> None:
    assert score("json_equal", answer, {"a": expected}) is equal


def test_the_order_of_lists_can_be_ignored() -> None:
    assert score("json_equal", [{"y": 1}, {"x": [2, 1]}], [{"x": [1, 2]}, {"y": 1}], ignore_order=True)
    assert not score("json_equal", [1, 1, 2], [1, 2, 2], ignore_order=True)


@pytest.mark.parametrize(
    ("answer", "equal"),
    [
        ("select a, B from T where x = 1 and y = 2", True),
        ("SELECT a, b FROM t WHERE y = 2 AND x = 1;", True),
        ("SELECT b, a FROM t WHERE x = 1 AND y = 2", False),
        ("SELECT a, b FROM t WHERE x = 1 OR y = 2", False),
        ("DROP TABLE (", False),
        ("", False),
    ],
)
def test_sql_is_equal_however_it_is_written(answer: str, equal: bool) -> None:
    assert score("sql_equal", answer, "SELECT a, b FROM t WHERE x = 1 AND y = 2") is equal


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ndcg", {"k": 0}, "'k' is 0; expected a whole number of at least 1"),
        ("ndcg", {"k": True}, sentence("{}; expected a whole number", "'k' is True")),
        ("rouge", {"variant": "3"}, "'variant' is '3'; expected one of 1, 2, L"),
        ("rouge", {"figure": "best"}, "expected one of f1, precision, recall"),
        ("bleu", {"tokenize": "spm"}, sentence("expected one of {}", "13a")),
        ("chrf", {"word_order": -1}, "'word_order' is -1"),
        ("sql_equal", {"dialect": "postgers"}, sentence("did you mean '{}'", "postgres")),
        ("edit_similarity", {"ignore_case": "yes"}, sentence("expected true or false")),
        ("tools_called", {"order": "sorted"}, "expected one of any, in_order, exact"),
        ("tools_avoided", {}, sentence("needs the option {}", "'tools'")),
        ("tools_avoided", {"tools": "delete"}, sentence("{} is {}; expected a list of names", "'tools'", "'delete'")),
        ("tools_avoided", {"tools": [1]}, sentence("expected a list of names")),
        ("nodes_visited", {"nodes": []}, sentence("expected a list of names")),
        ("no_personal_data", {"kinds": ["names"]}, "expected a list of email, card"),
    ],
)
def test_options_are_refused_before_anything_runs(name: str, options: Mapping[str, Any], words: str) -> None:
    field = {} if name == "nodes_visited" else {"field": "a"}
    with pytest.raises(InputError, match=words):
        make_evaluator(name, {**field, **options}, str)


@pytest.mark.parametrize(
    ("name", "answer", "expected", "words"),
    [
        ("rouge", 5, "five", sentence("{} of the final state is {}; expected text", "'a'", 5)),
        ("rouge", "five", 5, sentence("expected a text, or a list of texts")),
        ("rouge", "five", [], sentence("expected a text, or a list of texts")),
        ("ndcg", "d1", ["d1"], sentence("expected a list of ids")),
        ("ndcg", ["d1"], {"a": {"d1": "high"}}, sentence("a grade in 'expected' of {} is {}", "'a'", "'high'")),
        ("ndcg", ["d1"], None, sentence("expected a list of relevant ids")),
        ("sql_equal", "SELECT 1", "SELECT (", "is not SQL"),
        ("tool_calls", "search", None, sentence("expected a list of messages")),
        ("tools_called", [], "search", sentence("expected a list of names of tools")),
        ("tool_arguments", [], [], sentence("expected a list of calls")),
        ("tool_arguments", [], [{"args": {}}], sentence("expected a list of calls")),
        ("quantity_close", "5 m", "five", sentence("expected one such as '5 km'")),
        ("no_secrets", 5, None, "expected text"),
    ],
)
def test_what_cannot_be_scored_says_why(name: str, answer: Any, expected: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        score(name, answer, expected)


NEEDED = [(name, *fn.wtb_needs) for name, fn in BUILT_IN.items() if hasattr(fn, "wtb_needs")]


def test_packages_that_are_needed_are_those_of_extras() -> None:
    assert {(package, extra) for _, package, extra in NEEDED} == {
        ("rapidfuzz", "text"),
        ("sacrebleu", "text"),
        ("wordllama", "embedding"),
        ("pint", "units"),
        ("sqlglot", "sql"),
    }


@pytest.mark.parametrize(("name", "package", "extra"), NEEDED)
def test_an_evaluator_whose_package_is_missing_says_which_extra(
    name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "wtb.authoring.evaluation.fields.find_spec",
        lambda package_name: None if package_name == package else find(package_name),
    )
    with pytest.raises(InputError) as refused:
        make_evaluator(name, {"field": "a"}, str)
    assert sentence("needs the package {}", package) in str(refused.value)
    assert f'pip install "workflow-test-bench[{extra}]"' in str(refused.value)
