"""Slices by tag beside the whole, and sources of noise by repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import make_bench
from tests.support.prose import sentence
from wtb.analysis.matrix.build import build
from wtb.analysis.matrix.facts import in_order
from wtb.authoring.context.node_context import Context
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.display import matrix_table, sentences
from wtb.display.report.report_files import render_matrix
from wtb.store.database import Database

State = dict[str, Any]


def y(case: Any, result: Any) -> float:
    return float(result.state["y"])


def plain(worse_by: float) -> Workflow:
    wf = Workflow("tagged")

    @wf.node
    def step(state: State, *, kind: str = "plain") -> State:
        loss = worse_by if state["hard"] else -worse_by / 2  # so that over all cases nothing is to be seen
        loss = loss if kind == "other" else 0.0
        return {"y": state["x"] % 5 - loss + (0.01 * (state["x"] % 3) if kind == "other" else 0.0)}

    step.variant("other", kind="other")
    wf.entry(step)
    return wf


def cases(count: int = 60) -> list[State]:
    return [
        {"input": {"x": n, "hard": n % 3 == 0}, "tags": ["hard", "odd"][: 1 + n % 2] if n % 3 == 0 else ["easy"]}
        for n in range(count)
    ]


def test_a_combination_that_is_worse_where_it_is_hard_is_told_of(database: Database, tmp_path: Path) -> None:
    bench = make_bench(database, tmp_path, plain(0.5), cases(), {"step": "all"}, evaluators={"y": y}, baseline={})
    bench.run()
    matrix = build(database, bench.row)
    slices = matrix["slices"]
    assert [(tag["tag"], tag["cases"]) for tag in slices["tags"]] == [("easy", 40), ("hard", 20), ("odd", 10)]
    hard = slices["tags"][1]["rows"][1]
    assert hard["delta"] == pytest.approx(-0.49, abs=0.02)
    assert hard["p_adjusted"] < 0.001
    assert slices["tags"][1]["rows"][0]["p"] is None  # the baseline itself
    lines = sentences.sliced(matrix)
    assert lines[0].startswith("Of the 20 cases tagged hard: other is -0.5")
    assert lines[0].endswith("from the baseline by y (worse, p<0.001).")
    assert lines[0] in " ".join(matrix_table.render(matrix, width=200).split("\n"))
    assert "Of the 20 cases tagged hard: other is" in render_matrix(matrix)


def test_tags_that_tell_no_cases_apart_are_no_slices(database: Database, tmp_path: Path) -> None:
    case_list = [{**case, "tags": ["all"]} for case in cases(12)]
    bench = make_bench(database, tmp_path, plain(0.5), case_list, {"step": "all"}, evaluators={"y": y}, baseline={})
    bench.run()
    matrix = bench.matrix()
    assert matrix["slices"] is None
    assert sentences.sliced(matrix) == []


def noisy() -> Workflow:
    """The first node adds noise that all combinations share, the second some of its own under one variant."""
    wf = Workflow("noisy")

    @wf.node
    def retrieve(state: State, ctx: Context) -> State:
        return {"found": state["x"] % 2 + ctx.rng.gauss(0, 1)}

    @wf.node
    def answer(state: State, ctx: Context, *, gain: float = 0.0) -> State:
        return {"y": state["found"] + gain + ctx.rng.gauss(0, 1) * gain}

    answer.variant("more", gain=1.0)
    wf.entry(retrieve)
    wf.edge(retrieve, answer)
    wf.edge(answer, END)
    return wf


def test_repeats_say_where_noise_comes_from(database: Database, tmp_path: Path) -> None:
    case_list = [{"input": {"x": n}} for n in range(30)]
    vary = {"answer": "all"}
    bench = make_bench(database, tmp_path, noisy(), case_list, vary, evaluators={"y": y}, baseline={}, repeats=3)
    bench.run()
    matrix = build(database, bench.row)
    noise = matrix["noise"]
    assert (noise["metric"], noise["cases"], noise["repeats"]) == ("y", 30, 3)
    (line,) = sentences.noise_parts(matrix)
    assert line.startswith("Of the variance of one score by y ")
    assert noise["common"] == pytest.approx(1.0, rel=0.5)
    assert noise["rest"] == pytest.approx(0.5, rel=0.5)
    assert noise["case"] < 0.5
    assert 0.71 < noise["narrower"]["cases"] + 0.01 < 0.73
    assert noise["narrower"]["repeats"] < 0.95


def test_cases_that_lack_scores_are_counted_where_noise_is_split(database: Database, tmp_path: Path) -> None:
    wf = Workflow("flaky")

    @wf.node
    def answer(state: State, ctx: Context, *, gain: float = 0.0) -> State:
        if state["x"] % 2 and ctx.repeat == 2:
            raise ValueError("hard cases fail sometimes")
        return {"y": ctx.rng.gauss(gain, 1)}

    answer.variant("more", gain=1.0)
    wf.entry(answer)
    case_list = [{"input": {"x": n}} for n in range(8)]
    bench = make_bench(
        database, tmp_path, wf, case_list, {"answer": "all"}, evaluators={"y": y}, baseline={}, repeats=3
    )
    bench.run()
    matrix = build(database, bench.row)
    assert (matrix["noise"]["cases"], matrix["noise"]["incomplete"]) == (4, 4)
    assert (
        sentence("This rests on {} of {} cases, because the others lack scores", 4, 8)
        in sentences.noise_parts(matrix)[0]
    )


def test_nodes_are_taken_in_the_order_in_which_they_run() -> None:
    line = {
        "entries": ["a"],
        "edges": [{"from": ["a"], "to": "b"}, {"from": ["b"], "to": "c"}, {"from": ["c"], "to": "a"}],
    }
    choices = [{"c": x, "a": z} for x in "12" for z in "12"]
    assert in_order(line, choices) == ["a", "c"]
    side_by_side = {"entries": ["a", "c"], "edges": []}
    assert in_order(side_by_side, choices) == []
