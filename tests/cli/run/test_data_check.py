"""What the check of the data says before a sweep runs, by real commands: the same sentences wherever people read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import wtb

if TYPE_CHECKING:
    from tests.support.project import Project

FLOW = """
from wtb import END, Workflow

wf = Workflow("ask")


@wf.node
def answer(state, ctx, *, lucky: float = 0.0):
    return {"right": hash(str((state["q"], lucky))) % 2 == 0}


answer.variant("other", lucky=1.0)
wf.entry(answer)
wf.edge(answer, END)


def right(case, result) -> bool:
    return result.state["right"]
"""
SENTENCE = (
    "80 of 100 cases repeat the input of another case (such as 'q0-0' and 'q0-1'): cases with equal inputs count as "
    "one cluster, so figures rest on 20 clusters of cases (`equal_inputs: independent` counts each case)"
)


def sweep(name: str, cases: Any, **more: Any) -> str:
    return json.dumps(
        {
            "sweep": name,
            "workflow": "ask:wf",
            "cases": cases,
            "vary": {"answer": "all"},
            "evaluate": ["ask:right"],
            "run": {"pool": "thread"},
            **more,
        }
    )


def words(text: str) -> str:
    return " ".join(text.split())


def repeated() -> list[dict[str, Any]]:
    return [{"id": f"q{n}-{number}", "input": {"q": f"question {n}"}} for n in range(20) for number in range(5)]


@pytest.fixture(scope="module")
def ask(shared_project: Project) -> Project:
    lines = "".join(f"{json.dumps(case)}\n" for case in repeated())
    shared_project.write(
        {
            "ask.py": FLOW,
            "cases.jsonl": lines,
            "alike.yaml": sweep("alike", "cases.jsonl"),
            "each.yaml": sweep("each", "cases.jsonl", equal_inputs="independent"),
        }
    )
    return shared_project


def test_equal_inputs_are_told_before_and_after_in_the_same_words(ask: Project) -> None:
    assert words(ask.inside("plan", "alike.yaml", check=0).stdout).count(SENTENCE) == 1
    planned = ask.inside("plan", "alike.yaml", "--format", "json", check=0).json
    assert planned["data"] == [{"kind": "equal_inputs", "cases": 80, "sentence": SENTENCE, "key": "equal_inputs"}]
    assert planned["notes"] == [SENTENCE]
    ran = ask.inside("run", "alike.yaml", check=0)
    assert ran.said.count(SENTENCE) == 1
    assert words(ran.stdout).count(SENTENCE) == 1
    matrix = ask.inside("matrix", "alike", "--format", "json", check=0).json
    assert (matrix["clusters"], matrix["warnings"].count(SENTENCE)) == (20, 1)
    for name, options in (("alike.md", ["--format", "md"]), ("alike.html", [])):
        ask.inside("report", "alike", "--output", name, *options, check=0)
        assert SENTENCE in words((ask.folder / name).read_text("utf-8").replace("&#39;", "'").replace("\\", ""))


def test_a_key_of_the_sweep_counts_each_case(ask: Project) -> None:
    planned = ask.inside("plan", "each.yaml", "--format", "json", check=0).json
    assert ("data" in planned, "notes" in planned) == (False, False)
    ask.inside("run", "each.yaml", "--quiet", check=0)
    assert ask.inside("matrix", "each", "--format", "json", check=0).json["clusters"] is None
    ask.write({"bad.yaml": sweep("bad", "cases.jsonl", equal_inputs="no")})
    said = ask.inside("plan", "bad.yaml", check=2).said
    assert "'equal_inputs' is 'no'; expected 'cluster' or 'independent'" in said


def test_regressions_rest_on_clusters_of_equal_inputs(ask: Project) -> None:
    ask.inside("run", "alike.yaml", "--quiet", check=0)
    ask.inside("baseline", "set", "nightly", "alike", check=0)
    found = ask.inside("regress", "alike.yaml", "--baseline", "nightly", "--quiet", "--format", "json", check=0).json
    assert found["verdict"] in ("same", "unclear")
    ask.inside("run", "each.yaml", "--quiet", check=0)
    compared = ask.inside("compare", "alike", "each", "--format", "json", check=0).json
    assert compared["cases"]["common"] == 100


def test_a_pilot_takes_the_clusters_of_its_cases(ask: Project) -> None:
    planned = ask.inside("plan", "alike.yaml", "--pilot", "7", "--format", "json", check=0).json
    assert planned["pilot"]["cases"] == 7


def test_python_gives_the_same_document(ask: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ask.folder)
    monkeypatch.syspath_prepend(ask.folder)
    with wtb.open("sqlite:///:memory:") as bench:
        assert bench.plan("alike.yaml")["notes"] == [SENTENCE]
