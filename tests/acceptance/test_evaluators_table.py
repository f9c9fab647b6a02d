"""docs/evaluators.md lists evaluators by question: each one prefers a better answer to a worse one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from wtb.authoring.code.import_paths import load
from wtb.authoring.evaluation.built_in import BUILT_IN
from wtb.authoring.evaluation.declarations import BY_PATH, make_evaluator
from wtb.authoring.evaluation.evaluators import CellResult, Evaluator, ScoredCase
from wtb.config.yaml_reader import parse
from wtb.core.scoring.measure import Observed
from wtb.planning.sweep_spec import read_evaluators

PAGE = Path(__file__).parents[2] / "docs" / "evaluators.md"
ELSEWHERE = ("judge", "wtb judge rank", "wtb label answer", "wtb judge check")  # tried by docs/judges.md
OF_OTHERS = ("weight", "assert")  # options, and no evaluators
BARE = ("tokens", "node_runs", "assertions")  # that take no option
RIGHT = "Your refund is on its way."
SEARCH, REFUND, DELETE = ({"name": name, "args": {"id": 7}} for name in ("search", "refund", "delete"))
SCHEMA_WORDS = "schema: {...}"
SCHEMA = "schema: {type: object, required: [a]}"


def cell(answer: Any = None, expected: Any = None, **took: Any) -> tuple[ScoredCase, CellResult]:
    """A case and its result, whose every key of the state is the answer."""
    keys = ("answer", "n", "distance", "out", "query", "code", "ids", "kind", "score", "messages")
    state = dict.fromkeys(keys, answer)
    return ScoredCase("case", {"question": "Where is it?"}, expected), CellResult(state, **took)


def compared(better: Any, worse: Any, expected: Any = None) -> tuple[Any, Any]:
    return cell(better, expected), cell(worse, expected)


OF_TEXT = compared(RIGHT, "sorry, no idea", RIGHT)
OF_RANKING = compared(["a", "b", "x"], ["x", "y", "a"], {"a": 2, "b": 1})
OF_CLASS = compared("refund", "delay", "refund")
PAIRS: dict[str, tuple[Any, Any]] = {
    **dict.fromkeys(("exact_match", "edit_similarity", "rouge", "bleu", "chrf", "embedding_similarity"), OF_TEXT),
    **dict.fromkeys(("regex", "weighted_mean", "autoevals:Levenshtein", "not"), OF_TEXT),
    **dict.fromkeys(("ndcg", "average_precision", "reciprocal_rank", "recall", "precision"), OF_RANKING),
    **dict.fromkeys(("macro_f1", "balanced_accuracy", "cohen_kappa"), OF_CLASS),
    **dict.fromkeys(("class_f1", "class_precision", "class_recall"), OF_CLASS),
    **dict.fromkeys(("auc", "brier", "calibration_error"), compared(0.9, 0.2, "refund")),
    "contains": compared("a refund, b", "nothing", None),
    "contains_any": compared("b", "c", None),
    "numeric_close": compared(5.2, 6, 5),
    "quantity_close": compared("1.2 km", "1.2 m", "1200 m"),
    "json_schema": compared('{"a": 1}', '{"b": 1}', None),
    "json_equal": compared('{"b": 2, "a": 1}', '{"a": 2}', {"out": {"a": 1, "b": 2}}),
    "sql_equal": compared("select a from t", "select b from t", "SELECT a FROM t"),
    "code_tests": compared("def double(x):\n    return 2 * x", "def double(x):\n    return x", "assert double(2) == 4"),
    "tools_called": compared([SEARCH, REFUND], [REFUND, SEARCH]),
    "tool_arguments": compared([SEARCH], [{"name": "search", "args": {"id": 8}}], [SEARCH]),
    "tools_avoided": compared([SEARCH], [DELETE]),
    "tool_calls": compared([SEARCH] * 5, [SEARCH] * 6),
    "repeated_tool_calls": compared([SEARCH], [SEARCH, SEARCH]),
    "nodes_visited": (cell(path=("plan", "act")), cell(path=("plan",))),
    "no_secrets": compared("It is ready.", "The key is AKIA" + "IOSFODNN7EXAMPLE."),
    "no_personal_data": compared("It is ready.", "Ask ana@example.org."),
    "latency": (cell(duration_s=1.0), cell(duration_s=3.0)),
    "cost": (cell(cost=0.001), cell(cost=0.1)),
    "tokens": (cell(tokens_in=1), cell(tokens_in=100)),
    "node_runs": (cell(node_runs=1), cell(node_runs=9)),
}
WHOLE = {"all_of": "all_of: [{contains: {field: answer, text: refund}}, {cost: {at_most: 0.01}}]"}
WHOLE["any_of"] = WHOLE["all_of"].replace("all_of", "any_of")
PAIRS |= {
    "all_of": (cell(RIGHT, cost=0.001), cell(RIGHT, cost=0.1)),
    "any_of": (cell(RIGHT, cost=0.1), cell("nothing", cost=0.1)),
    "assertions": compared(RIGHT, "nothing", {"assert": [{"contains": {"field": "answer", "text": "refund"}}]}),
}


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield each question of the table with the pieces of code that answer it."""
    table = PAGE.read_text("utf-8").split("| what you want to know | what to write |\n| --- | --- |\n")[1]
    for line in table.split("\n\n")[0].splitlines():
        question, written = line.strip("|").split(" | ", 1)
        yield question.strip(), re.findall(r"`([^`]+)`", written)


def pieces() -> Iterator[tuple[str, str]]:
    """Yield each question and piece of code. A piece without options has those of the piece before it."""
    for question, written in rows():
        beside = ""
        for piece in written:
            name, _, options = piece.partition(": ")
            if not options and name in BUILT_IN and name not in BARE:
                options = beside
            beside = options
            yield question, f"{name}: {options}" if options else name


def name_of(written: str) -> str:
    """Return the name of the evaluator in a piece of code."""
    return re.split(r":\s|:$", written)[0]


def build_evaluator(written: str) -> Evaluator:
    """Make the evaluator as a sweep file would."""
    text = WHOLE.get(name_of(written), written).replace(SCHEMA_WORDS, SCHEMA)
    name, option_text = name_of(text), text.partition(": ")[2]
    options = parse(f"of: {option_text or '{}'}".encode(), "the table").data["of"]
    (ref,) = read_evaluators([{name: options}] if options else [name])
    return make_evaluator(ref.name, ref.options, load)


def score_of(evaluator: Evaluator, arguments: tuple[ScoredCase, CellResult], better: str) -> float:
    score = evaluator.fn(*arguments)
    number = score.value if isinstance(score, Observed) else evaluator.judged(float(score))
    return number if better == "higher" else -number


@pytest.mark.parametrize(
    ("question", "written"), [row for row in pieces() if name_of(row[1]) not in ELSEWHERE and row[1] not in OF_OTHERS]
)
def test_what_the_table_says_to_write_likes_what_it_should(question: str, written: str, tmp_path: Path) -> None:
    if written.startswith("assert: "):  # what stands in a case
        assertions = parse(written.encode(), "the table").data["assert"]
        evaluator = build_evaluator("assertions")
        pair = tuple(cell(text, {"assert": assertions}, cost=0.001) for text in (RIGHT, "nothing"))
    else:
        evaluator = build_evaluator(written)
        pair = PAIRS[name_of(written)]
    direction = evaluator.measure(evaluator.name).better
    if evaluator.figure in ("auc", "calibration_error"):
        direction = "higher"  # what a cell shows of them is the score of the class
    placed = [(case, replace(result, workspace_of=lambda: tmp_path)) for case, result in pair]
    better, worse = (score_of(evaluator, arguments, direction) for arguments in placed)
    assert better > worse, question


def test_every_built_in_evaluator_answers_a_question_of_the_table() -> None:
    named = {name_of(written) for _, written in pieces()}
    assert {*BUILT_IN, *BY_PATH} - named == set()
