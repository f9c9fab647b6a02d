"""Cases without an expected value for a metric are in no figure, and every form reports their number."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support import prose
from tests.support.project import Project
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.running_totals import live
from wtb.authoring.workflow import Workflow
from wtb.store.read import tallies

Make = Callable[..., Any]
EVALUATE = [{"exact_match": {"field": "y"}}, {"macro_f1": {"field": "y"}}]
# Odd cases expect nothing; from the fourth case on, `other` fails.
CASES = [{"id": str(x), "input": {"x": x}, **({} if x % 2 else {"expected": {"y": 1}})} for x in range(12)]


def workflow(*, always: bool = False) -> Workflow:
    wf = Workflow("sums")

    def answer(state: dict[str, Any], *, name: str = "default") -> dict[str, Any]:
        if state["x"] >= 4 and (always or name == "other"):
            raise ValueError("too hard")
        return {"y": 1}

    node = wf.node(answer)
    node.variant("other", name="other")
    wf.entry(node)
    return wf


def test_failed_cells_of_cases_that_expect_nothing_count_nowhere(run_sweep: Make) -> None:
    bench = run_sweep(workflow(), CASES, {"answer": "all"}, evaluate=EVALUATE)
    matrix = bench.matrix()
    default, other = (row["metrics"]["exact_match"] for row in matrix["rows"])
    assert (default["mean"], default["n"]) == (1, 6)
    assert (other["mean"], other["n"], other["n_pairs"]) == (2 / 6, 6, 6)
    assert matrix["metrics"]["exact_match"]["without_expected"] == 6
    assert matrix["metrics"]["exact_match"]["failed"] == 4
    assert matrix["scores_failed"] == 0
    assert default.get("bounds") is None, "no score is missing"
    assert (
        prose.sentence(
            "{} of {} cases {} no expected value for {}: they get no score by it", 6, 12, "have", "exact_match"
        )
        in matrix["warnings"]
    )
    assert not [warning for warning in matrix["warnings"] if prose.sentence("in fewer cases") in warning]
    tallies.tally(bench.database, bench.sweep_id)
    running = live(bench.database, bench.row)["rows"][1]["metrics"]["exact_match"]
    assert (running["n"], running["mean"]) == (6, 2 / 6)


def test_a_case_that_fails_in_every_combination_still_expects_nothing(run_sweep: Make) -> None:
    bench = run_sweep(workflow(always=True), CASES, {"answer": "all"}, evaluate=EVALUATE)
    matrix = bench.matrix()
    figures = [row["metrics"]["exact_match"] for row in matrix["rows"]]
    assert [(each["mean"], each["n"]) for each in figures] == [(2 / 6, 6)] * 2


def test_sweeps_are_compared_over_the_cases_that_both_score(run_sweep: Make) -> None:
    before = run_sweep(workflow(), CASES, {"answer": ["default"]}, evaluate=EVALUATE)
    sweep = before.row
    (row,) = compare_sweeps(before.database, sweep, sweep)["rows"]
    assert row["metrics"]["exact_match"]["n_pairs"] == 6


FLOW = """
from wtb import Workflow

wf = Workflow("flow")


@wf.node
def A(state):
    return {"a": state["x"]}


wf.entry(A)
"""
SHEET = "id,x,expected\n" + "".join(f"c{n},{n},{'' if n else '0'}\n" for n in range(3)) + ",,\n"


def test_plan_matrix_report_and_cells_count_them(project: Project) -> None:
    sweep = "workflow: flow:wf\ncases: cases.csv\nvary: {A: all}\nevaluate: [{contains: {field: a}}]\n"
    project.write({"cases.csv": SHEET, "flow.py": FLOW, "sweep.yaml": sweep})
    sentence = "2 of 3 cases have no expected value for contains: they get no score by it"
    plan = project.inside("plan", "sweep.yaml")
    assert "x 3 cases" in plan.stdout
    assert sentence in " ".join(plan.stdout.split())
    assert "1 blank row of" in plan.stdout
    assert json.loads(project.inside("plan", "sweep.yaml", "--format", "json").stdout)["notes"][0] == sentence
    ran = project.inside("run", "sweep.yaml")
    assert ran.code == 0
    assert sentence in ran.output
    assert sentence in " ".join(ran.stdout.split())
    cells = json.loads(project.inside("show", "sweep", "--cells", "--format", "json").stdout)["cells"]
    assert [cell["scores"] for cell in cells] == [{"contains": 1}, {"contains": None}, {"contains": None}]
    assert sentence in " ".join(project.inside("report", "sweep", "--format", "md").stdout.split())
    assert project.inside("log", "sweep").code == project.inside("show", "sweep", "--cells").code == 0
    assert project.inside("report", "sweep", "--output", "r.html").code == 0
