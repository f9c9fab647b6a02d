"""The cells as CSV and as a data frame have the scores that the matrix counts: plain means of them are its means."""

from __future__ import annotations

import io
from pathlib import Path

import pandas
import pytest

import wtb
from tests.support.project import Project

FLOW = """
from wtb import END, Workflow, evaluator

wf = Workflow("flow")


@wf.node(retries=0)
def answer(state, ctx, *, by: int = 1):
    if (state["x"] + by) % 4 == 0:
        raise ValueError("no answer")
    return {"y": state["x"] * by}


@wf.node
def check(state):
    return {"z": state["y"]}


@evaluator(better="higher", scale=(0, 1))
def even(case, result):
    return float(result.state["y"] % 2 == 0)


@evaluator(better="higher")
def size(case, result):
    return float(result.state["y"])


@evaluator(better="higher", on_failure=-1)
def sign(case, result):
    return 1.0


wf.entry(answer)
wf.edge(answer, check)
wf.edge(check, END)
"""
SWEEP = """
sweep: mixed
workflow: flow:wf
cases: [{id: a, input: {x: 1}}, {id: b, input: {x: 2}}, {id: c, input: {x: 3}, expected: 3}, {id: d, input: {x: 4}}]
vary: {answer: {by: [1, 2, 3]}}
repeats: 2
evaluate: ["flow:even", "flow:size", "flow:sign", exact_match: {field: y}]
"""


def means(frame: pandas.DataFrame, metric: str) -> list[float | None]:
    by_case = frame.groupby(["answer", "case"])[f"{metric}.counted"].mean()
    return [None if pandas.isna(mean) else float(mean) for mean in by_case.groupby("answer").mean()]


def in_matrix(project: Project, metric: str) -> list[float | None]:
    rows = project.json("matrix", "mixed")["rows"]
    return [
        row["metrics"].get(metric, {}).get("mean") for row in sorted(rows, key=lambda row: row["combination"]["answer"])
    ]


@pytest.mark.parametrize(
    "kinds", ["", "failure_kinds: {error: missing}\n", "on_failure: 0.5\n", "on_failure: left_out\n"]
)
def test_means_of_what_counts_are_those_of_the_matrix(
    tmp_path: Path, kinds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    project.write({"flow.py": FLOW, "sweep.yaml": SWEEP + kinds})
    project.inside("run", "sweep.yaml", "--quiet")
    text = project.text("show", "mixed", "--cells", "--format", "csv")
    frame = pandas.read_csv(io.StringIO(text))
    assert (frame["status"] == "failed").sum() == 6
    monkeypatch.chdir(tmp_path)
    with wtb.open() as bench:
        same = bench.sweep("mixed").to_pandas()
    for metric in ("even", "size", "sign", "exact_match"):
        expected = in_matrix(project, metric)
        assert means(frame, metric) == pytest.approx(expected), metric
        assert means(same, metric) == pytest.approx(expected), metric
    failed = frame[frame["status"] == "failed"]
    assert failed["even"].isna().all(), "what was scored stays as it was"
    cells = project.json("show", "mixed", "--cells")["cells"]
    assert all("counted" not in cell for cell in cells if cell["status"] == "succeeded")
    assert {cell["counted"]["sign"] for cell in cells if "counted" in cell} <= {-1.0}
