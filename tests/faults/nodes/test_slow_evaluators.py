"""Evaluators that take for ever: an error of their metric for that cell, and the run goes on, or ends when it must."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.cluster import Cluster
from tests.support.invariants import nothing_is_left, processes_left
from tests.support.project import Project
from tests.support.prose import sentence
from tests.support.waiting import PATIENCE_S

pools = pytest.mark.parametrize("pool", ["process", pytest.param("thread", marks=pytest.mark.slow)])
# Evaluators hang for 600 s or more, so that a run that ends within PATIENCE_S, however busy the machine is, has not
# waited for them. `^(a+)+$` takes longer than the age of the universe for this.
FLOW = """
import asyncio
import time

from wtb import END, Workflow, evaluator

wf = Workflow("slow")


@wf.node
def work(state, ctx):
    return {"y": "a" * state["x"] + "!", "n": state["x"], "l": ["a" * state["x"] + "!"]}


wf.entry(work)
wf.edge(work, END)


def hangs(case, result):
    if result.state["n"] == 60:
        time.sleep(600)
    return 1


@evaluator(timeout=0.5)
def declared(case, result):
    return hangs(case, result)


@evaluator(timeout=0.5)
async def awaits(case, result):
    if result.state["n"] == 60:
        await asyncio.sleep(600)
    return 1


def own_option(case, result, *, timeout: float):
    return timeout


def quick(case, result):
    return 1
"""
CASES = '{"id": "short", "input": {"x": 3}}\n{"id": "long", "input": {"x": 60}}\n'
HEAD = "sweep: slow\nworkflow: slow:wf\ncases: cases.jsonl\nvary: {work: all}\n"
REGEX = 'regex: {field: y, pattern: "^(a+)+$", timeout: 500ms}'


def write_slow(project: Project, evaluate: str, more: str = "") -> None:
    sweep = f"{HEAD}evaluate:\n{evaluate}\n{more}"
    project.write({"slow.py": FLOW, "sweep.yaml": sweep, "cases.jsonl": CASES})


def scores(project: Project) -> dict[tuple[str, str], Any]:
    """(metric, case) -> the score, or the error in its place."""
    query = (
        "SELECT s.metric, c.id, s.value, s.error FROM scores s "
        "JOIN cases c ON c.sweep_id = s.sweep_id AND c.number = s.case_number"
    )
    return {(metric, case): score if error is None else error for metric, case, score, error in project.query(query)}


@pools
def test_an_evaluator_at_its_deadline_is_an_error_of_its_metric_for_that_cell(project: Project, pool: str) -> None:
    evaluate = f"""
- slow:quick
- {REGEX}
- 'slow:hangs': {{timeout: 500ms}}
- slow:declared
- slow:awaits
- 'slow:own_option': {{timeout: 1m}}
- json_schema: {{field: l, schema: {{items: {{pattern: "^(a+)+$"}}}}, timeout: 0.5}}
- contains: {{field: y, text: nowhere}}
"""
    write_slow(project, evaluate, f"run: {{pool: {pool}, concurrency: 2}}\n")
    project.wtb("run", "sweep.yaml", "--quiet", check=0, timeout=PATIENCE_S)
    outcomes = scores(project)
    for metric in ("regex", "hangs", "declared", "awaits", "json_schema"):
        assert "deadline of 0.5 s" in outcomes[metric, "long"], metric
    assert {metric: outcomes[metric, "short"] for metric in ("regex", "hangs", "declared", "awaits")} == {
        "regex": 0, "hangs": 1, "declared": 1, "awaits": 1,
    }  # fmt: skip
    for case in ("short", "long"):
        assert outcomes["quick", case] == 1, "those before it keep their scores"
        assert outcomes["own_option", case] == 60
        assert outcomes["contains", case] == 0, "and so do those after it"
    assert project.query("SELECT DISTINCT status FROM cells") == [("succeeded",)]
    nothing_is_left(project)


@pytest.mark.slow
def test_an_evaluator_at_its_deadline_on_a_worker_is_an_error_of_its_metric(cluster: Cluster) -> None:
    write_slow(cluster.project, f"- slow:quick\n- {REGEX}\n- slow:declared\n")
    cluster.start_scheduler()
    cluster.start_worker(concurrency=2)
    cluster.submit()
    cluster.wait_completed()
    outcomes = scores(cluster.project)
    assert "deadline of 0.5 s" in outcomes["regex", "long"]
    assert "deadline of 0.5 s" in outcomes["declared", "long"]
    assert (outcomes["quick", "long"], outcomes["declared", "short"], outcomes["regex", "short"]) == (1, 1, 0)


@pools
def test_a_pattern_that_takes_for_ever_does_not_hold_up_the_end_of_the_time_that_a_run_may_take(
    empty_project: Project, pool: str
) -> None:
    project = empty_project
    regex = 'regex: {field: y, pattern: "^(a+)+$", timeout: 10m}'
    write_slow(project, f"- {regex}\n", f"limits: {{wall: 2s}}\nrun: {{pool: {pool}, grace: 200ms}}\n")
    done = project.wtb("run", "sweep.yaml", "--quiet", check=1, timeout=PATIENCE_S)
    assert "wall = 2 s" in done.output
    assert project.query("SELECT status, reason FROM sweeps") == [
        ("paused", sentence("limit reached: {} = {}", "wall", "2 s"))
    ]
    assert project.query("SELECT count(*) FROM cells WHERE status = 'failed'") == [(0,)]
    project.until(lambda: not processes_left(project), "node processes to end")


@pytest.mark.parametrize(
    ("evaluate", "words"),
    [
        (
            '- regex: {field: y, pattern: "a(b"}',
            ["sweep.yaml:6", "'pattern' is 'a(b'", sentence("not a regular expression")],
        ),
        ('- regex: {field: y, pattern: "a{99999999999}"}', ["sweep.yaml:6", sentence("not a regular expression")]),
        ("- regex: {field: y, pattern: 5}", ["sweep.yaml:6", "'pattern' is 5", "expected a regular expression"]),
        ("- regex: {field: y, pattern: a, timeout: soon}", ["sweep.yaml:6", "timeout", "expected a positive duration"]),
        ("- regex: {field: y, pattern: a, timeout: 0}", ["sweep.yaml:6", "timeout", "expected a positive duration"]),
        ("- json_schema: {field: y, schema: {type: words}}", ["sweep.yaml:6", "schema.type"]),
        ("- json_schema: {field: y, schema: {pattern: 'a('}}", ["sweep.yaml:6", "schema.pattern"]),
        ("- numeric_close: {field: n, abs: -1}", ["sweep.yaml:6", "'abs' is -1", sentence("a number from 0 on")]),
        ("- exact_match: {field: [y]}", ["sweep.yaml:6", "'field' is ['y']", sentence("the name of a key")]),
        ("- exact_match: {field: y, ignore_case: maybe}", ["sweep.yaml:6", "'ignore_case' is 'maybe'"]),
        (
            "- regex: {field: y}",
            ["cases.jsonl", "case 'bad'", "'expected'", "'b('", sentence("not a regular expression")],
        ),
    ],
)
def test_patterns_schemas_and_options_that_can_give_no_score_are_refused_before_the_run(
    empty_project: Project, evaluate: str, words: list[str]
) -> None:
    project = empty_project
    write_slow(project, evaluate)
    bad = json.dumps({"id": "bad", "input": {"x": 1}, "expected": {"y": "b("}})
    project.write({"cases.jsonl": CASES + bad + "\n"})
    done = project.inside("run", "sweep.yaml", "--quiet", check=2)
    for word in words:
        assert word in done.output
    assert not project.query("SELECT id FROM sweeps")
