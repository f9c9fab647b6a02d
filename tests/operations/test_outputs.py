"""Outputs side by side: what combinations returned for each case, filtered and ordered by both databases."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from tests.support.documents import validator
from tests.support.project import Project
from tests.support.prose import sentence
from wtb import Sweep, SweepHandle, Workflow, evaluator
from wtb.core.documents.outputs import CUT
from wtb.core.errors import InputError
from wtb.operations.context import Context
from wtb.operations.deleting import erase
from wtb.operations.results.side_by_side import outputs
from wtb.store.database import Database

ESCAPES = '"\\\n\t\x00\x1b é \u202e \U0001f600'
LONG = (ESCAPES * 1_000_000)[:9_000_000]  # 10 MB and more as it is stored
CASES: list[dict[str, Any]] = [
    {"id": "q1", "input": {"question": "Capital of France?"}, "expected": "Paris", "tags": ["easy"]},
    {"id": "q2", "input": {"question": "Capital of Peru?"}, "expected": "Lima", "tags": ["easy", "far"]},
    {"id": "q3", "input": {"question": "50% of 8_0?"}, "expected": "40"},
    {"id": "q4", "input": {"question": "long"}},
]


def asking() -> Workflow:
    workflow = Workflow("asking")

    @workflow.node
    def answer(state: Any, ctx: Any, *, style: str = "plain") -> dict[str, Any]:
        question = state["question"]
        if question in ("long", "huge"):
            text = LONG if question == "huge" else LONG[:20_000]
            return {"answer": text, "steps": ["\u202e", {"deep": "x" * 5_000}]}
        if style == "broken" and "Peru" in question:
            raise ValueError("the line to Lima was cut")
        answers = {"Capital of France?": "Paris", "Capital of Peru?": "Cusco", "50% of 8_0?": "40"}
        text = answers[question]
        ctx.cost(usd=0.5)
        return {"answer": f"It is {text.upper()}." if style == "loud" else text, "steps": ["read", "think"]}

    answer.variant("loud", style="loud")
    answer.variant("broken", style="broken")
    workflow.entry(answer)
    return workflow


@evaluator(better="higher", scale=(0, 1))
def right(case: Any, result: Any) -> float:
    if case.expected is None:
        raise ValueError("nothing to compare with")
    return float(case.expected.lower() in result.state["answer"].lower())


@pytest.fixture
def sweep(database: Database) -> SweepHandle:
    return Sweep(
        workflow=asking(),
        cases=CASES,
        vary={"answer": ["default", "loud", "broken"]},
        evaluate=[right, {"exact_match": {"field": "answer"}}],
        repeats=1,
        name="asked",
        run={"pool": "thread"},
    ).run(database)


def ids(document: Any) -> list[str]:
    return [case["case"] for case in document["cases"]]


def test_cases_are_rows_and_combinations_columns(sweep: SweepHandle) -> None:
    document = sweep.outputs(rows=[1, 0])
    validator("outputs").validate(json.loads(json.dumps(document)))
    assert [row["combination"] for row in document["rows"]] == [{"answer": "loud"}, {"answer": "default"}]
    assert (document["keys"], document["other_keys"]) == (["answer"], ["steps", "question"]), (
        "what evaluators read is shown"
    )
    assert (document["total"], document["combinations"], document["repeats"]) == (4, 3, 1)
    first = document["cases"][0]
    assert (first["case"], first["tags"], first["expected"]["value"]) == ("q1", ["easy"], "Paris")
    assert first["input"]["question"]["value"] == "Capital of France?"
    loud, plain = first["cells"]
    assert (loud["outputs"]["answer"]["value"], plain["outputs"]["answer"]["value"]) == ("It is PARIS.", "Paris")
    assert (loud["row"], loud["status"], loud["cost_usd"]) == (1, "succeeded", 0.5)
    assert plain["scores"]["right"] == {"value": 1.0, "reason": None, "version": None}
    assert "nothing to compare with" in document["cases"][3]["cells"][0]["scores"]["right"]["reason"]
    assert sweep.outputs(keys=["steps"])["cases"][0]["cells"][0]["outputs"]["steps"]["value"] == ["read", "think"]


def test_an_execution_has_its_case_and_its_cells(sweep: SweepHandle) -> None:
    execution = sweep.execution("q2", {"answer": "loud"})
    document = outputs(Context(sweep.database), execution.id)
    assert (ids(document), [row["row"] for row in document["rows"]]) == (["q2"], [1])
    assert document["cases"][0]["cells"][0]["execution"] == execution.id


def test_a_failed_cell_has_its_error_and_what_there_was(sweep: SweepHandle) -> None:
    document = sweep.outputs(failed=True)
    assert ids(document) == ["q2"]
    plain, _, broken = document["cases"][0]["cells"]
    assert (plain["error"], broken["status"]) == (None, "failed")
    assert "the line to Lima was cut" in broken["error"]
    assert broken["outputs"] == {}
    part = sweep.outputs(failed=True, columns=[1])
    assert (ids(part), [row["row"] for row in part["rows"]]) == (["q2"], [1]), "filters are by all rows"
    assert sweep.outputs(failed=True, rows=[0, 1])["total"] == 0, "of the combinations that are shown"


def test_the_database_filters_by_difference_tag_text_and_case(sweep: SweepHandle) -> None:
    assert ids(sweep.outputs(differ=[0, 1])) == ["q1", "q2", "q3"]
    assert ids(sweep.outputs(differ=[0, 2])) == ["q2"], "one of them failed"
    assert ids(sweep.outputs(differ=[0, 1], keys=["steps"])) == []
    assert ids(sweep.outputs(tag="far")) == ["q2"]
    assert ids(sweep.outputs(tag="easy", differ=[0, 2])) == ["q2"]
    assert ids(sweep.outputs(text="cusco")) == ["q2"], "in an output, in any case of letters"
    assert ids(sweep.outputs(text="lima")) == ["q2"], "expected"
    assert ids(sweep.outputs(text="of fr")) == ["q1"], "in an input"
    assert ids(sweep.outputs(text="THE LINE TO")) == ["q2"], "in an error"
    assert ids(sweep.outputs(text="50%")) == ids(sweep.outputs(text="8_0")) == ["q3"], "no pattern"
    assert ids(sweep.outputs(text="think")) == [], "in what is shown"
    assert ids(sweep.outputs(text="think", keys=["steps"])) == ["q1", "q2", "q3"]
    assert ids(sweep.outputs(text="\\\n\t")) == ["q4"], "as it is, not as it is stored"
    assert ids(sweep.outputs(text="Q3")) == ["q3"], "an id"
    assert ids(sweep.outputs(cases=["q3", "q1"])) == ["q1", "q3"]


def test_the_worst_cases_come_first(sweep: SweepHandle) -> None:
    assert ids(sweep.outputs(worst="right")) == ["q2", "q1", "q3", "q4"], "those without a score come last"
    assert ids(sweep.outputs(worst="right", rows=[0], limit=1)) == ["q2"]


def test_cases_that_all_combinations_get_wrong_or_none_does(sweep: SweepHandle) -> None:
    """A failed cell is wrong, a cell without a score is neither, and rows that are not shown count."""
    assert ids(sweep.outputs(wrong="all")) == ["q2"]
    assert ids(sweep.outputs(wrong="none")) == ["q1", "q3"]
    assert ids(sweep.outputs(wrong="none", metric="exact_match", rows=[0])) == [], "the loud one is wrong"
    assert ids(sweep.outputs(wrong="all", metric="exact_match", rows=[0], text="Peru")) == ["q2"]
    assert sweep.outputs(wrong="none", tag="easy")["total"] == 1
    assert sweep.outputs(limit=1)["metrics"]["right"] == {"better": "higher", "best": 1}
    for arguments, words in (({"metric": "right"}, "expected wrong, too"), ({"wrong": "some"}, "'some'")):
        with pytest.raises(InputError, match=words):
            sweep.outputs(**arguments)
    with pytest.raises(InputError, match=sentence("no metric {}", "'rihgt'")):
        sweep.outputs(wrong="all", metric="rihgt")


def test_a_status_lists_the_cases_of_each_cause(sweep: SweepHandle) -> None:
    execution = sweep.execution("q2", {"answer": "broken"})
    ((cause,), more) = sweep.status_details(cases=3)["failures"].values()  # type: ignore[typeddict-item]
    assert cause["cases"] == [{"case": "q2", "cells": 1, "execution": execution.id}]
    assert cause["text"] == "the line to Lima was cut"
    assert more == 0
    assert ids(sweep.outputs(failed=True, text=cause["text"])) == ["q2"], "it is found by that"
    with pytest.raises(InputError, match="100"):
        sweep.status_details(cases=101)


def test_pages_follow_each_other(sweep: SweepHandle) -> None:
    pages = [sweep.outputs(limit=3, offset=offset) for offset in (0, 3, 6)]
    assert [ids(page) for page in pages] == [["q1", "q2", "q3"], ["q4"], []]
    assert {page["total"] for page in pages} == {4}


def test_long_values_are_cut_with_a_path_to_the_whole(database: Database) -> None:
    cases = [{"id": "q1", "input": {"question": "huge"}, "expected": "Paris"}]
    run = {"pool": "thread"}
    sweep = Sweep(workflow=asking(), cases=cases, vary={"answer": ["default"]}, evaluate=[right], run=run).run(database)
    document = sweep.outputs(keys=["answer", "steps"])
    (cell,) = document["cases"][0]["cells"]
    answer, steps = cell["outputs"]["answer"], cell["outputs"]["steps"]
    assert len(json.dumps(document)) < 60_000
    assert answer["value"] == LONG[: len(answer["value"])]
    assert CUT - 100 < len(answer["value"]) <= CUT
    assert (answer["cut"], answer["kind"]) == (True, "text")
    assert answer["bytes"] > 10_000_000
    assert answer["whole"] == f"/executions/{cell['execution']}/value?key=answer"
    assert steps["value"][1] == {"deep": "x" * CUT}
    assert steps["cut"]
    execution = sweep.execution("q1")
    assert execution.read_value("answer") == LONG
    assert json.loads(execution.read_value("steps"))[1] == {"deep": "x" * 5_000}
    assert sweep.read_value("q1") == "Paris"
    assert sweep.read_value("q1", "question") == "huge"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rows": [3]}, sentence("{} {}: the sweep has the rows 0 to {}", "rows", 3, 2)),
    ({"differ": [0]}, sentence("differ is {}; expected two combinations", 0)),
    ({"differ": [1, 1]}, sentence("expected two combinations")),
    ({"differ": [1, 7]}, sentence("{} {}: the sweep has the rows 0 to {}", "differ", 7, 2)),
    ({"keys": ["anser"]}, "no key 'anser'; did you mean 'answer'"),
    ({"worst": "rigt"}, sentence("did you mean '{}'", "right")),
    ({"tag": "eazy"}, sentence("did you mean '{}'", "easy")),
    ({"cases": ["q9"]}, sentence("the sweep has no case {}", "'q9'")),
    ({"rows": [0], "columns": [1]}, sentence("columns has {}; expected some of rows", 1)),
    ({"limit": 1001}, "limit is 1001"),
]


def test_what_there_is_not_is_rejected(sweep: SweepHandle, subtests: pytest.Subtests) -> None:
    for options, words in WRONG:
        with subtests.test(**options), pytest.raises(InputError, match=words.replace("?", r"\?")):
            sweep.outputs(**options)


def test_no_text_of_an_erased_case_is_found(sweep: SweepHandle) -> None:
    erase(Context(sweep.database), "q2")
    assert "q2" not in ids(sweep.outputs())
    assert ids(sweep.outputs(text="cusco")) == []


FLOW = """
from wtb import Workflow
wf = Workflow("answers")

@wf.node
def answer(state, *, loud: bool = False):
    if loud and state["question"] == "b":
        raise ValueError("too loud \\x1b[31m")
    return {"answer": (state["question"] * 4000).upper() if loud else "\\x1b[31mred " + state["question"]}

answer.variant("loud", loud=True)
wf.entry(answer)
"""


SWEEP = """
sweep: s
workflow: flow:wf
cases: cases.jsonl
vary: {answer: all}
evaluate: [{contains: {field: answer}}]
"""


def test_people_read_them_in_80_columns(project: Project) -> None:
    cases = [{"id": name, "input": {"question": name}, "expected": f"red {name}"} for name in "abc"]
    project.write({"flow.py": FLOW, "cases.jsonl": "\n".join(map(json.dumps, cases)), "sweep.yaml": SWEEP})
    project.inside("run", "sweep.yaml", "--quiet", check=1)
    text = project.inside("show", "s", "--outputs", "--limit", "2", check=0).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text, "a terminal would obey it"
    shown_words = (
        "case a",
        "question: a",
        "expected: red a",
        "answer=loud",
        "failed",
        "too loud",
        "bytes",
        "1 to 2 of 3",
    )
    assert [words for words in (*shown_words, sentence("more with --offset {}", 2)) if words not in text] == []
    document = project.inside("show", "s", "--outputs", "--failed", "--format", "json", check=0).json
    assert ids(document) == ["b"]
    execution = document["cases"][0]["cells"][0]["execution"]
    assert project.inside("show", execution, "--key", "answer", check=0).stdout == "\x1b[31mred b\n"
    assert project.inside("show", "s", "--case", "c", "--key", "question", check=0).stdout == "c\n"
    assert "contains: 'red a' is not in answer" in text, "the reason for the score"
    project.inside("comment", "add", "s", "c", "Too \x1b[31mlong", "--row", "1", check=0)
    commented = project.inside("show", "s", "--outputs", "--case", "c", check=0).stdout
    assert "[31mlong" in commented
    assert "\x1b" not in commented
    assert "case c, row 1" in project.inside("comment", "list", "s", check=0).stdout
    lines = list(
        csv.DictReader(project.inside("show", "s", "--outputs", "--format", "csv", check=0).stdout.splitlines())
    )
    assert [(line["case"], line["answer"], line["status"]) for line in lines[:2]] == [
        ("a", "default", "succeeded"),
        ("a", "loud", "succeeded"),
    ]
    assert (lines[1]["contains"], lines[1]["contains.reason"]) == ("0.0", "'red a' is not in answer")
    assert lines[5]["comments"].endswith("Too \x1b[31mlong")
    assert project.inside("comment", "delete", "s", "1", check=0).stdout == "comment 1 deleted\n"
    assert project.inside("comment", "add", "s", "c", "--row", "1", check=2).output
    assert project.inside("show", "s", "--format", "csv", check=2).output
    for options in (("--worst", "x"), ("--differ", "0"), ("--outputs", "--cells"), ("--outputs", "--tag", "x")):
        assert project.inside("show", "s", *options, check=2).output
