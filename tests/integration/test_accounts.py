"""What a sweep says that it has spent and tried, held against what its nodes did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.integration.conftest import CASES
from wtb import Context, evaluator
from wtb.evaluation import Measure, Score
from wtb.inspection import status_document
from wtb.matrix import build
from wtb.render import html, markdown, summary, table
from wtb.store.rescoring import scored_executions, write_scores
from wtb.workflow import END, Workflow

Make = Callable[..., Any]
Given = dict[str, Any]


def test_sharing_never_seems_to_cost_money(run_sweep: Make) -> None:
    wf = Workflow("spending")

    @wf.node(retries=1)
    def shared(state: Given, ctx: Context) -> Given:
        ctx.cost(usd=1.0)
        if ctx.attempt == 1:
            raise OSError("try again")
        return {"a": 1}

    @wf.node
    def last(state: Given, ctx: Context) -> Given:
        ctx.cost(usd=0.25)
        raise ValueError("never succeeds")

    last.variant("other", lambda state: {"b": 1})
    wf.entry(shared)
    wf.edge(shared, last)
    wf.edge(last, END)
    bench = run_sweep(wf, vary={"last": "all"})
    document = build(bench.database, bench.row)
    assert document["cost"]["usd"] == 2.25
    assert document["cost"]["unshared_usd"] == 4.25  # both cells make both attempts of `shared`, and one that of `last`
    assert "Cost: $2.25 spent, $4.25 without sharing." in summary.totals(document)
    assert document["cost"]["usd"] == status_document(bench.database, bench.row)["cost"]["usd"]


def test_a_metric_whose_direction_nobody_declared_is_warned_of_once_and_shown_with_its_arrow(run_sweep: Make) -> None:
    wf = Workflow("guessing")
    node = wf.node(lambda state, *, k=1: {"y": k}, name="guess")
    node.variant("far", k=100)
    wf.entry(node)
    wf.edge(node, END)

    def distance(case: Any, result: Any) -> float:
        return abs(float(result.state["y"]))

    @evaluator(better="lower")
    def steps(case: Any, result: Any) -> int:
        return len(result.path)

    @evaluator(better={"near": "lower"})
    def several(case: Any, result: Any) -> dict[str, int]:
        return {"near": 1, "other": 2}

    bench = run_sweep(wf, CASES, {"guess": "all"}, evaluators={"d": distance, "s": steps, "several": several})
    document = build(bench.database, bench.row)
    declared = {name: metric["declared"] for name, metric in document["metrics"].items()}
    assert declared == {"distance": False, "steps": True, "several.near": True, "several.other": False}
    (warning,) = document["warnings"]
    assert "distance, several.other are better, so higher is taken to be" in warning
    assert '@evaluator(better="lower")' in warning
    for text in (table.render(document, 200), markdown.render(document), html.render(document)):
        assert "distance ↑" in text
        assert "steps ↓" in text
        assert text.count("nobody has said which values") == 1


def test_a_direction_that_is_declared_later_counts_once_the_sweep_is_scored_again(run_sweep: Make) -> None:
    wf = Workflow("guessing")
    node = wf.node(lambda state, *, k=1: {"y": k}, name="guess")
    node.variant("far", k=100)
    wf.entry(node)
    wf.edge(node, END)

    def distance(case: Any, result: Any) -> float:
        return abs(float(result.state["y"]))

    bench = run_sweep(wf, CASES, {"guess": "all"}, evaluators={"distance": distance})
    assert build(bench.database, bench.row)["best"]["distance"]["combination"] == {"guess": "far"}
    found = [row for rows in scored_executions(bench.database, bench.sweep_id) for row in rows]
    values = {0: 1.0, 1: 100.0}
    made = [(row, [Score("distance", values[row["combinations"][0]], Measure("lower"))]) for row in found]
    write_scores(bench.database, bench.row, made)
    document = build(bench.database, bench.row)
    assert document["best"]["distance"]["combination"] == {"guess": "default"}
    assert document["warnings"] == []
