"""Extensions of sweeps whose evaluators have changed since: rejected until old cells are scored by them, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.project import Project
from tests.support.prose import sentence

FLOW = """
from wtb import END, Workflow

wf = Workflow("plain")


@wf.node
def answer(state):
    return {"y": state["x"] + 1, "text": "2"}


wf.entry(answer)
wf.edge(answer, END)
"""
SCORING = """
from wtb import evaluator

FACTOR = {factor}


def helped(value):
    return value * FACTOR


@evaluator(better="higher"{scale})
def good(case, result, *, most=100):
    return min(most, helped(result.state["y"]))


def other(case, result):
    return 1.0
"""
SWEEP = """
sweep: plain
workflow: flow:wf
cases: [{id: a, input: {x: 1}}, {id: b, input: {x: 2}}]
vary: {answer: all}
evaluate: ["scoring:good", "scoring:other", {contains: {field: text, text: "2"}}]
"""
MORE = '{"id": "c", "input": {"x": 3}}\n'


def scoring(factor: int = 1, scale: str = "") -> str:
    return SCORING.replace("{factor}", str(factor)).replace("{scale}", scale)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    new_project = Project(tmp_path)
    new_project.write({"flow.py": FLOW, "scoring.py": scoring(), "sweep.yaml": SWEEP, "more.jsonl": MORE})
    new_project.inside("run", "sweep.yaml", "--quiet", check=0)
    return new_project


def values(project: Project) -> list[float]:
    cells = project.inside("show", "plain", "--cells", "--format", "json", check=0).json["cells"]
    return [cell["scores"]["good"] for cell in cells]


@pytest.mark.parametrize("change", [{"factor": 10}, {"scale": ", scale=(0, 1000)"}])
def test_a_changed_evaluator_is_named_with_what_to_do(project: Project, change: dict[str, object]) -> None:
    project.write({"scoring.py": scoring(**change)})  # type: ignore[arg-type]
    refused = project.inside("extend", "plain", "--cases", "more.jsonl", check=2)
    assert sentence("{} changed since the cells that are there were scored", "evaluator 'good' has") in refused.output
    assert "--evaluate scoring:good`" in refused.output
    assert "other" not in refused.output.partition("evaluator")[2].partition("wtb score")[0]
    assert values(project) == [2.0, 3.0]


def test_only_scoring_the_old_cells_again_by_the_changed_evaluator_permits_the_extension(project: Project) -> None:
    project.write({"scoring.py": scoring(10)})
    project.inside("score", "plain", "--evaluate", "scoring:other", check=0)
    refused = project.inside("extend", "plain", "--repeats", "2", check=2).output
    assert sentence("{} has changed", "'good'") in refused
    assert "scoring:FACTOR changed" in refused
    project.inside("score", "plain", "--evaluate", "scoring:good", check=0)
    project.inside("extend", "plain", "--cases", "more.jsonl", "--quiet", check=0)
    assert values(project) == [20.0, 30.0, 40.0]


def test_options_of_a_new_scoring_hold_for_new_cells_as_well(project: Project) -> None:
    project.write({"again.yaml": SWEEP.replace('"scoring:good"', '{"scoring:good": {most: 3}}')})
    project.inside("score", "plain", "--file", "again.yaml", check=0)
    project.inside("extend", "plain", "--cases", "more.jsonl", "--quiet", check=0)
    assert values(project) == [2.0, 3.0, 3.0]


def test_a_change_can_be_allowed_and_the_old_code_brought_back(project: Project) -> None:
    project.write({"scoring.py": scoring(10)})
    project.inside("extend", "plain", "--repeats", "2", check=2)
    project.write({"scoring.py": scoring()})
    project.inside("extend", "plain", "--repeats", "2", "--quiet", check=0)
    project.write({"scoring.py": scoring(10)})
    project.inside("extend", "plain", "--cases", "more.jsonl", "--allow-code-change", "--quiet", check=0)
    assert values(project) == [2.0, 2.0, 3.0, 3.0, 40.0, 40.0]
    project.inside("extend", "plain", "--repeats", "3", "--quiet", check=0)


def test_a_baseline_is_copied_scored_again_and_then_extended(project: Project) -> None:
    project.inside("baseline", "set", "main", "plain", check=0)
    project.write({"scoring.py": scoring(10)})
    assert "--new-name" in project.inside("extend", "plain", "--repeats", "2", check=2).output
    refused = project.inside("extend", "plain", "--repeats", "2", "--new-name", "plain2", check=2)
    assert "evaluator 'good' has changed" in refused.output
    project.inside("admin", "copy", "plain", "--new-name", "plain2", check=0)
    project.inside("score", "plain2", "--evaluate", "scoring:good", check=0)
    project.inside("extend", "plain2", "--cases", "more.jsonl", "--quiet", check=0)
    assert values(project) == [2.0, 3.0], "the baseline is as it was"
    cells = project.inside("show", "plain2", "--cells", "--format", "json", check=0).json["cells"]
    assert [cell["scores"]["good"] for cell in cells] == [20.0, 30.0, 40.0]
