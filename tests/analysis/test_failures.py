"""Failed cells are results: their scores, the cells that are left out, and their costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.flows import failures
from tests.support.prose import sentence
from wtb import evaluator
from wtb.analysis.comparison.compare import compare_sweeps
from wtb.analysis.kept_matrix import judged
from wtb.analysis.matrix.attribution import attribute, pairwise
from wtb.analysis.matrix.build import freeze
from wtb.analysis.scores import Scores
from wtb.authoring.workflow import Workflow
from wtb.authoring.workflow_facts import END
from wtb.core.errors import InputError
from wtb.display.report.open_cases import worst
from wtb.store.tables.schema import scores

Make = Callable[..., Any]
CASES = [{"id": str(x), "input": {"x": x}, "expected": {"y": 1}} for x in range(40)]
EXACT = [{"exact_match": {"field": "y"}}]


def workflow(
    fails: Callable[[str, int], bool], right: Callable[[str, int], bool] = lambda variant, x: True
) -> Workflow:
    """One node with the variants `default` and `other`; every attempt costs 0.01."""
    wf = Workflow("sums")

    def answer(state: dict[str, Any], ctx: Any, *, name: str = "default") -> dict[str, Any]:
        ctx.cost(usd=0.01)
        if fails(name, state["x"]):
            raise ValueError("too hard")
        return {"y": int(right(name, state["x"]))}

    node = wf.node(answer)
    node.variant("other", name="other")
    wf.entry(node)
    return wf


def always_wrong_or_failing(run_sweep: Make, **spec: Any) -> Any:
    """`other` fails in 39 of 40 cases and is right in one; `default` is right in three of four."""
    wf = workflow(lambda name, x: name == "other" and x > 0, lambda name, x: name == "other" or x % 4 > 0)
    return run_sweep(wf, CASES, {"answer": "all"}, **{"evaluate": EXACT, "best": {"maximize": "exact_match"}, **spec})


def metric(document: dict[str, Any], row: int, name: str = "exact_match") -> dict[str, Any]:
    return dict(document["rows"][row]["metrics"][name])


def find_warning(document: dict[str, Any], start: str) -> str:
    """Return the only warning that begins with `start`."""
    (text,) = [warning for warning in document["warnings"] if warning.startswith(start)]
    return str(text)


def test_what_fails_nearly_everywhere_is_not_the_best(run_sweep: Make) -> None:
    document = always_wrong_or_failing(run_sweep, gates=["exact_match.mean >= 0.7"]).matrix()
    assert [metric(document, row)["mean"] for row in (0, 1)] == [0.75, 1 / 40]
    best = document["best"]["exact_match"]
    assert (best["combination"], best["clear"]) == ({"answer": "default"}, True)
    assert document["choice"]["combination"] == {"answer": "default"}
    assert document["front"]["exact_match"] == [0]
    assert find_warning(document, "39 failed") == "39 failed cells count as 0 by exact_match"
    assert (document["metrics"]["exact_match"]["on_failure"], document["metrics"]["exact_match"]["failed"]) == (0, 39)


def test_what_is_left_out_is_not_ranked_and_no_gate_takes_it(run_sweep: Make) -> None:
    gates = ["exact_match.mean >= 0.9", "exact_match.n >= 30"]
    best = {"maximize": "exact_match", "subject_to": "exact_match.n < 30"}
    bench = always_wrong_or_failing(run_sweep, on_failure="left_out", gates=gates, best=best)
    document = judged(bench.database, bench.row)
    assert metric(document, 1)["mean"] == 1.0
    assert metric(document, 1)["common_mean"] is None
    assert metric(document, 1)["bounds"] == [1 / 40, 1.0]
    assert document["best"]["exact_match"]["combination"] == {"answer": "default"}
    assert document["best"]["exact_match"]["unranked"] == [{"answer": "other"}]
    assert document["front"]["exact_match"] == [0]
    assert document["choice"]["combination"] is None
    assert (
        sentence("{} is not ranked by {}: it has a score in {}", "answer=other", "exact_match", "1 case")
        in document["choice"]["because"]
    )
    assert [gate["holds"] for gate in document["gates"]] == [None, None]
    assert find_warning(document, "39 failed") == "39 failed cells are left out by exact_match"
    assert "answer=other would be 0.025 to 1" in find_warning(
        document, "missing scores could change which is best by exact_match"
    )


def test_a_gate_on_a_combination_that_is_not_ranked_cannot_be_told(run_sweep: Make) -> None:
    wf = workflow(lambda name, x: x > 0)  # the only combination
    gates = ["exact_match.mean >= 0.9", "exact_match.n >= 1"]
    bench = run_sweep(wf, CASES, {"answer": ["default"]}, evaluate=EXACT, on_failure="left_out", gates=gates)
    document = judged(bench.database, bench.row)
    assert [gate["holds"] for gate in document["gates"]] == [None, True]
    assert sentence("a score in {}", "1 case") in document["gates"][0]["because"]


def test_a_failure_has_the_score_that_the_sweep_or_the_evaluator_says(run_sweep: Make) -> None:
    @evaluator(better="lower", scale=(0, 10))
    def errors(case: Any, result: Any) -> float:
        return 2.0

    @evaluator(better="higher", on_failure=-1)
    def gain(case: Any, result: Any) -> float:
        return 1.0

    @evaluator(better="higher")
    def unsaid(case: Any, result: Any) -> float:
        return 1.0

    evaluators = {"tests:errors": errors, "tests:gain": gain, "tests:unsaid": unsaid}
    listed = ["tests:errors", "tests:gain", "tests:unsaid", "latency", "node_runs"]
    wf = workflow(lambda name, x: name == "other" and x % 2 == 0)
    vary = {"answer": "all"}
    document = run_sweep(wf, CASES, vary, evaluators=evaluators, evaluate=listed).matrix()
    assert [metric(document, 1, name)["mean"] for name in ("errors", "gain", "unsaid")] == [6.0, 0.0, 1.0]
    assert [metric(document, 1, name)["n"] for name in ("unsaid", "latency", "node_runs")] == [20] * 3
    assert find_warning(document, "20 failed cells count as 10") == "20 failed cells count as 10 by errors"
    assert "by unsaid: " + sentence("no score for failures (`on_failure`) and no scale") in find_warning(
        document, "20 failed cells are left out"
    )

    document = run_sweep(wf, CASES, vary, evaluators=evaluators, evaluate=listed, on_failure=4).matrix()
    assert [metric(document, 1, name)["mean"] for name in ("errors", "gain", "unsaid")] == [3.0, 0.0, 2.5]
    assert metric(document, 1, "latency")["n"] == 20, "what a cell takes has no score where it failed"


def test_what_failures_count_as_may_be_changed_afterwards(run_sweep: Make) -> None:
    bench = always_wrong_or_failing(run_sweep)
    assert freeze(bench.database, bench.sweep_id)
    assert metric(bench.matrix(), 1)["mean"] == 1 / 40
    assert metric(bench.matrix(on_failure=0.5), 1)["mean"] == pytest.approx((39 * 0.5 + 1) / 40)
    assert metric(bench.matrix(on_failure="left_out"), 1)["n"] == 1
    with pytest.raises(InputError, match="on_failure is 2; expected a score on the scale of exact_match, 0 to 1"):
        bench.matrix(on_failure=2)
    assert [score["error"] for score in bench.rows(scores)] == [None] * 41, "no false score is stored"


def test_repeats_that_fail_are_averaged_with_those_that_succeed(run_sweep: Make) -> None:
    wf = Workflow("flaky")

    @wf.node
    def answer(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        if ctx.repeat == 1 and state["x"] < 20:
            raise ValueError("flaky")
        return {"y": 1}

    wf.entry(answer)
    spec: dict[str, Any] = {"repeats": 4, "evaluate": EXACT}
    document = run_sweep(wf, CASES, {"answer": ["default"]}, **spec).matrix()
    assert metric(document, 0)["mean"] == pytest.approx((20 * 0.75 + 20) / 40)
    document = run_sweep(wf, CASES, {"answer": ["default"]}, **spec, on_failure="left_out").matrix()
    assert metric(document, 0)["mean"] == 1.0
    assert metric(document, 0)["bounds"] == [pytest.approx(0.875), 1.0]


def test_kinds_of_failure_that_are_no_result_are_missing(run_sweep: Make) -> None:
    document = always_wrong_or_failing(run_sweep, failure_kinds={"error": "missing"}).matrix()
    assert metric(document, 1)["n"] == 1
    assert find_warning(document, "39 failed") == sentence(
        "{} no result ({}) and left out everywhere", "39 failed cells are", "39 error"
    )
    assert document["best"]["exact_match"]["unranked"] == [{"answer": "other"}]


def test_cells_that_a_budget_ended_are_missing(run_sweep: Make) -> None:
    wf = Workflow("costly")

    @wf.node(max_usd=0.05)
    def answer(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        ctx.cost(usd=0.1 if state["x"] < 30 else 0.01)
        return {"y": 1}

    wf.entry(answer)
    bench = run_sweep(wf, CASES, {"answer": ["default"]}, evaluate=EXACT)
    assert Counter(kind for kind, _ in failures(bench)) == {"budget": 30}
    document = bench.matrix()
    assert (metric(document, 0)["n"], metric(document, 0)["mean"]) == (10, 1.0)
    assert find_warning(document, "30 failed") == sentence(
        "{} no result ({}) and left out everywhere", "30 failed cells are", "30 budget"
    )


def test_a_row_shows_what_its_failures_cost(run_sweep: Make) -> None:
    wf = workflow(lambda name, x: name == "other" and x % 4 == 0)
    document = run_sweep(wf, CASES, {"answer": "all"}, evaluate=EXACT).matrix()
    well, failing = document["rows"]
    keys = ("cost_usd", "cost_failed_usd", "cost_per_success_usd")
    assert [well[key] for key in keys] == pytest.approx([0.01, 0.0, 0.01])
    assert [failing[key] for key in keys] == pytest.approx([0.01, 0.1, 0.4 / 30])
    costs = [row["cost_usd"] * row["succeeded"] + row["cost_failed_usd"] for row in document["rows"]]
    assert sum(costs) == pytest.approx(document["cost"]["unshared_usd"])


def test_attempts_that_failed_before_one_succeeded_are_in_the_costs_of_failures(run_sweep: Make) -> None:
    wf = Workflow("again")

    @wf.node(retries=2)
    def first(state: dict[str, Any], ctx: Any) -> dict[str, Any]:
        ctx.cost(usd=0.01)
        if ctx.attempt == 1:
            raise ValueError("again")
        return {"read": 1}

    node = wf.node(lambda state, *, k=0: {"y": 1}, name="answer")
    node.variant("other", k=1)
    wf.entry(first)
    wf.edge(first, node)
    wf.edge(node, END)
    document = run_sweep(wf, CASES[:5], {"answer": "all"}, evaluate=EXACT).matrix()
    for row in document["rows"]:
        assert row["cost_failed_usd"] == pytest.approx(0.05), "each as if alone, although the node ran once for both"
        assert row["cost_per_success_usd"] == pytest.approx(0.02)


def test_every_reader_of_scores_sees_the_same(run_sweep: Make) -> None:
    bench = always_wrong_or_failing(run_sweep)
    document = attribute(Scores(bench.database, bench.row), "exact_match")
    assert (document["cases"], document["missing"]) == (40, 0)
    (pair,) = pairwise(Scores(bench.database, bench.row), "exact_match")["pairs"]
    assert (pair["n_pairs"], pair["delta"]) == (40, pytest.approx(0.725))
    hardest = worst(bench.database, bench.row, bench.matrix())
    assert {case["worst"]["execution"] is not None for case in hardest["cases"] if case["worst"]} == {True}


def test_a_comparison_takes_new_failures_for_results(run_sweep: Make) -> None:
    vary: dict[str, Sequence[str]] = {"answer": ["default"]}
    before = run_sweep(workflow(lambda name, x: False), CASES, vary, evaluate=EXACT)
    after = run_sweep(workflow(lambda name, x: x < 30), CASES, vary, evaluate=EXACT)
    document = compare_sweeps(before.database, before.row, after.row)
    (row,) = document["rows"]
    assert (row["metrics"]["exact_match"]["n_pairs"], row["metrics"]["exact_match"]["delta"]) == (40, -0.75)
    assert document["verdict"] == "worse"
    assert len(document["cells"]) == 30, "each cell that fails now is listed once"


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"on_failure": 2},
            "evaluator 'exact_match': on_failure is 2; expected a score on its scale, 0 to 1, or left_out",
        ),
        (
            {"primary": "exact_mach"},
            sentence("no evaluator gives {}", "'exact_mach'") + sentence("; did you mean '{}'?", "exact_match"),
        ),
        ({"margin": {"exact_match": 1.5}}, "margin.exact_match"),
        (
            {"evaluate": [{"exact_match": {"field": "y", "on_failure": -1}}]},
            "evaluator 'exact_match': on_failure is -1; expected a score on its scale, 0 to 1, or left_out",
        ),
        (
            {"evaluate": [{"latency": {"on_failure": 1}}]},
            sentence("evaluator {} takes no option {}", "'latency'", "'on_failure'"),
        ),
    ],
)
def test_what_no_scale_has_is_refused(bench: Make, spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as refused:
        bench(workflow(lambda name, x: False), CASES, {"answer": "all"}, **{"evaluate": EXACT, **spec})
    assert problem in str(refused.value)
