"""Figures of a sweep that stopped at a limit: some have an interval, and others wait for the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.prose import sentence

if TYPE_CHECKING:
    from tests.support.project import Project

CASES = 170
FLOW = """
import random

from wtb import END, Workflow, evaluator

wf = Workflow("answers")


@wf.node
def answer(state, *, gain: float = 0.0):
    noise = random.Random(f"{state['x']} {gain}")
    return {"passed": noise.random() < 0.3 + gain, "even": noise.gauss(gain), "uneven": noise.lognormvariate(0, 2)}


answer.variant("better", gain=0.6)
wf.entry(answer)
wf.edge(answer, END)


@evaluator(better="higher")
def graded(case, result):
    return {"even": result.state["even"], "uneven": result.state["uneven"]}


@evaluator(better="higher", scale=(0, 1))
def passed(case, result):
    return float(result.state["passed"])
"""


def sweep(node_runs: int) -> str:
    cases = ", ".join(f"{{id: c{n}, input: {{x: {n}}}}}" for n in range(CASES))
    return f"""
sweep: answers
workflow: answers:wf
cases: [{cases}]
vary: {{answer: all}}
evaluate: ["answers:passed", "answers:graded"]
limits: {{node_runs: {node_runs}}}
run: {{pool: thread, concurrency: 1}}
"""


def stopped_at(project: Project, node_runs: int) -> dict[str, Any]:
    project.write({"answers.py": FLOW, "sweep.yaml": sweep(node_runs)})
    project.inside("run", "sweep.yaml", "-q", check=1)
    matrix: dict[str, Any] = project.inside("matrix", "answers", "--format", "json").json
    return matrix


def has_interval(matrix: dict[str, Any], metric: str) -> list[bool]:
    return [row["metrics"][metric]["ci"] is not None for row in matrix["rows"]]


@pytest.mark.parametrize(("node_runs", "has_even"), [(200, False), (330, True)])
def test_scores_without_bounds_have_an_interval_only_from_many_cases_on(
    empty_project: Project, node_runs: int, has_even: bool
) -> None:
    matrix = stopped_at(empty_project, node_runs)
    assert matrix["figures"] == "anytime"
    assert has_interval(matrix, "passed") == [True, True]  # by betting: the scale is declared
    assert has_interval(matrix, "graded.even") == [has_even, has_even]
    assert has_interval(matrix, "graded.uneven") == [False, False]
    assert matrix["best"]["passed"]["clear"]
    assert not matrix["best"]["graded.uneven"]["clear"]
    text = " ".join(empty_project.inside("matrix", "answers", "--warnings").stdout.split())
    assert sentence("{} {} no declared bounds (`scale`, `limits`)", "graded.even", "and graded.uneven have") in text


def test_a_sweep_that_continues_has_the_figures_of_its_end(empty_project: Project) -> None:
    stopped_at(empty_project, 200)
    empty_project.inside("resume", "answers", "--limits", f"node_runs={2 * CASES}", "-q", check=0)
    matrix = empty_project.inside("matrix", "answers", "--format", "json").json
    assert matrix["figures"] == "final"
    assert has_interval(matrix, "graded.even") == has_interval(matrix, "graded.uneven") == [True, True]
