"""Evaluator options that name files are read wherever scoring runs: `wtb score`, `wtb try`, Python and the client."""

from __future__ import annotations

from pathlib import Path

import pytest

import wtb
from tests.support.project import Project
from tests.support.prose import sentence
from wtb.core.errors import InputError
from wtb.operations.results.scoring import score
from wtb.operations.running.previews import preview_evaluator
from wtb.planning.parameter_files import with_files_read

FLOW = """
from wtb import END, Workflow, evaluator

wf = Workflow("flow")


@wf.node
def answer(state):
    return {"y": "blue and green"}


@evaluator(better="higher")
def mentions(case, result, *, words):
    return float(all(word in result.state["y"] for word in words.split()))


wf.entry(answer)
wf.edge(answer, END)
"""
SWEEP = """
sweep: colours
workflow: flow:wf
cases: [{id: a, input: {x: 1}}]
vary: {answer: [default]}
evaluate: [{"flow:mentions": {words: red}}]
"""
WITH_FILE = SWEEP.replace("words: red", "words: file://words.txt")
FROM_FILE = '{"flow:mentions": {words: file://words.txt}}'


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP, "again.yaml": WITH_FILE})
    project.write({"words.txt": "blue green", "wtb.toml": ""})
    project.inside("run", "sweep.yaml", "--quiet", check=0)
    return project


def mean(project: Project) -> float:
    (row,) = project.json("matrix", "colours")["rows"]
    return float(row["metrics"]["mentions"]["mean"])


@pytest.mark.parametrize("options", [("--evaluate", FROM_FILE), ("--file", "again.yaml")])
def test_score_reads_the_file_that_an_option_names(project: Project, options: tuple[str, str]) -> None:
    assert mean(project) == 0
    project.inside("score", "colours", *options, check=0)
    assert mean(project) == 1
    project.write({"words.txt": "blue yellow"})
    project.inside("score", "colours", *options, check=0)
    assert mean(project) == 0
    added = project.inside("extend", "colours", "--repeats", "2", check=0)
    assert "changed" not in added.output, "the sweep records the text"


def test_score_rejects_a_file_that_is_not_there_before_any_work(project: Project) -> None:
    wrong = project.inside("score", "colours", "-e", FROM_FILE.replace("words.txt", "word.txt"), check=2)
    assert "file://word.txt: no such file" in wrong.stderr
    assert "words.txt" in wrong.stderr
    assert mean(project) == 0


def test_python_reads_it_and_operations_reject_what_is_unread(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    monkeypatch.syspath_prepend(project.folder)
    evaluators = [{"flow:mentions": {"words": "file://words.txt"}}]
    with wtb.open() as bench:
        with pytest.raises(InputError, match=sentence("names a file, which the server does not read")):
            score(bench.backend, "colours", evaluate=evaluators)
        with pytest.raises(InputError, match=sentence("names a file, which the server does not read")):
            preview_evaluator(bench.backend, {"contains": {"text": "file://words.txt"}}, {"y": "1"})
        bench.sweep("colours").score(evaluators)
    assert mean(project) == 1
    assert with_files_read({"evaluate": evaluators}) == {"evaluate": [{"flow:mentions": {"words": "blue green"}}]}
    assert with_files_read({"evaluator": {"matches": {"pattern": "file://words.txt"}}}) == {
        "evaluator": {"matches": {"pattern": "blue green"}}
    }
